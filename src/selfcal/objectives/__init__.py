"""The terms of the losses, one file each. A term maps a reading of a network to a scalar."""

from selfcal.objectives.cross_entropy import cross_entropy
from selfcal.objectives.dlsm import likelihood_matching
from selfcal.objectives.dsm import denoising
from selfcal.objectives.jacobian import jacobian
from selfcal.objectives.jem import naive_energy
from selfcal.objectives.reading import ConditionalEstimate, Estimate, Reading, Term
from selfcal.objectives.recovery import recovery_likelihood
from selfcal.objectives.robust import robust_cross_entropy
from selfcal.objectives.self_calibration import self_calibration

__all__ = [
    "ConditionalEstimate",
    "Estimate",
    "Reading",
    "Term",
    "cross_entropy",
    "denoising",
    "jacobian",
    "likelihood_matching",
    "naive_energy",
    "recovery_likelihood",
    "robust_cross_entropy",
    "self_calibration",
]
