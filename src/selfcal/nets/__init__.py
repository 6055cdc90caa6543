"""Networks: a score of (x, σ), and a classifier of (x, σ)."""

from selfcal.nets.builders import build_classifier, build_conditional, build_score, form_of, without_memory
from selfcal.nets.classifier import Classifier
from selfcal.nets.forms import ScoreModel

__all__ = [
    "Classifier",
    "ScoreModel",
    "build_classifier",
    "build_conditional",
    "build_score",
    "form_of",
    "without_memory",
]
