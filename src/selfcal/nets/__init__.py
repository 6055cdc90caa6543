"""Networks: a score of (x, σ), and a classifier of (x, σ)."""

from selfcal.nets.classifier import Classifier, build_classifier
from selfcal.nets.score import ScoreModel, build_conditional, build_score

__all__ = ["Classifier", "ScoreModel", "build_classifier", "build_conditional", "build_score"]
