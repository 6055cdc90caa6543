"""Metrics, all functions of features or probabilities, never of images."""

from selfcal.core.comparable import check_comparable
from selfcal.metrics.accuracy import generation_accuracy
from selfcal.metrics.calibration import expected_calibration_error, reliability
from selfcal.metrics.fid import fid
from selfcal.metrics.inception_score import inception_score
from selfcal.metrics.kid import kid
from selfcal.metrics.per_class import per_class
from selfcal.metrics.prdc import density_coverage, precision_recall

__all__ = [
    "check_comparable",
    "density_coverage",
    "expected_calibration_error",
    "fid",
    "generation_accuracy",
    "inception_score",
    "kid",
    "per_class",
    "precision_recall",
    "reliability",
]
