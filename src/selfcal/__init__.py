"""selfcal: class-conditional image generation when only a few images are labelled."""

__version__ = "0.1.0"

from selfcal.errors import SelfcalError
from selfcal.fitting import train
from selfcal.run import Run, load
from selfcal.sampling import Samples

__all__ = ["Run", "Samples", "SelfcalError", "load", "train"]
