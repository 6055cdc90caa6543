"""JEM with diffusion recovery likelihood (Gao et al. 2021): the classifier's energy, trained by short chains.

On a ladder σ_0 < … < σ_L with δ² = σ²_{k+1} − σ²_k, a noisier x̃ = x_{σ_k} + δ ε leaves a posterior
p(x|x̃) ∝ exp(logsumexp_y f(x, y, σ_k) − ‖x − x̃‖²/2δ²) that is nearly unimodal, so that a short
Langevin chain started at x̃ reaches it.
"""

from __future__ import annotations

from selfcal.core.late import Tensor, torch
from selfcal.diffusion.noise import Noise
from selfcal.diffusion.scores import Logits, like
from selfcal.methods.reading import Reading, Term

STEP = 0.2  # Langevin step b² as a share of the posterior's variance δ²σ²/(δ² + σ²)


def langevin(classifier: Logits, noisier: Tensor, sigma: Tensor, delta: Tensor, steps: int) -> Tensor:
    """x ← x + ½ b² ∇ log p(x|x̃) + b ξ, from x̃."""
    variance = like(delta, noisier) ** 2
    b2 = STEP * like((delta * sigma) ** 2 / (delta**2 + sigma**2), noisier)
    x = noisier.detach()
    for _ in range(steps):
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            (energy,) = torch.autograd.grad(classifier(x, sigma).logsumexp(-1).sum(), x)
        x = x.detach() + 0.5 * b2 * (energy - (x.detach() - noisier) / variance) + b2.sqrt() * torch.randn_like(x)
    return x.detach()


def recovery_likelihood(noise: Noise, levels: int = 10, steps: int = 30) -> Term:
    """E[LSE(x⁻, σ_k)] − E[LSE(x_{σ_k}, σ_k)]: lower the density of what the chain made, raise that of the data.

    Sees every example of the batch, labelled or not.
    """

    def term(r: Reading) -> Tensor:
        x0 = r.batch.x0
        k = torch.randint(levels, (len(x0),), device=x0.device)
        sigmas = noise.geometric(levels + 1)[:-1].flip(0).to(x0.device)  # the ladder
        sigma, delta = sigmas[k], (sigmas[k + 1] ** 2 - sigmas[k] ** 2).sqrt()
        data = x0 + like(sigma, x0) * torch.randn_like(x0)
        noisier = data + like(delta, x0) * torch.randn_like(x0)
        end = langevin(r.classifier, noisier, sigma, delta, steps)
        both = r.classifier(torch.cat([end, data]), sigma.repeat(2)).logsumexp(-1)
        return r.mean(both[: len(x0)]) - r.mean(both[len(x0) :])

    return term
