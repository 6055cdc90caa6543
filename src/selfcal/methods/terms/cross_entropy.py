"""Time-dependent cross-entropy: the classification term, on perturbed inputs."""

from __future__ import annotations

from selfcal.core.late import Tensor, torch
from selfcal.diffusion.scores import UNLABELED
from selfcal.methods.reading import Reading, Term


def cross_entropy(smoothing: float = 0.0) -> Term:
    """E[−log softmax f(x_σ, ·, σ)_y] over the examples it sees, which must have a class.

    With label smoothing the target is (1 − ε) onehot(y) + ε/K.
    """

    def term(r: Reading) -> Tensor:
        return torch.nn.functional.cross_entropy(r.logits, r.y, ignore_index=UNLABELED, label_smoothing=smoothing)

    return term
