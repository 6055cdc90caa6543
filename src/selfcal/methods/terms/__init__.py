"""The terms of the losses, one file each. A term maps a reading of a network to a scalar."""

from selfcal.methods.reading import ConditionalEstimate, Estimate, Reading, Term
from selfcal.methods.terms.cross_entropy import cross_entropy
from selfcal.methods.terms.dlsm import likelihood_matching
from selfcal.methods.terms.dsm import denoising
from selfcal.methods.terms.jacobian import jacobian
from selfcal.methods.terms.jem import naive_energy
from selfcal.methods.terms.recovery import recovery_likelihood
from selfcal.methods.terms.robust import robust_cross_entropy
from selfcal.methods.terms.self_calibration import self_calibration

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
