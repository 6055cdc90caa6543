"""The terms of the losses, one file each. A term maps a reading of a network to a scalar."""

from selfcal.objectives.cross_entropy import cross_entropy
from selfcal.objectives.dsm import denoising
from selfcal.objectives.reading import Estimate, Reading, Term
from selfcal.objectives.self_calibration import self_calibration

__all__ = ["Estimate", "Reading", "Term", "cross_entropy", "denoising", "self_calibration"]
