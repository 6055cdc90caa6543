"""A small CNN trained on *all* labels of the data: the judge of samples, never a guide.

Its 64-d penultimate layer gives the features, its softmax the generation accuracy. The one for
digits is bundled, so that everybody measures with the same; `python -m selfcal.evaluation.judge`
makes it again.
"""

from __future__ import annotations

import hashlib
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch import Tensor, nn

from selfcal.core.files import file_sha256, write_bytes
from selfcal.core.progress import bar, say
from selfcal.core.reading import read_tensors
from selfcal.data.dataset import Dataset
from selfcal.data.pixels import some
from selfcal.data.sources import load_data
from selfcal.diffusion.scores import UNLABELED
from selfcal.evaluation.cache import file_of, forget, keep, kept, remembered

BUNDLED = Path(__file__).with_name("digits_judge.safetensors")
STEPS, BATCH = 1500, 128
STUDENT_STEPS = 300  # of one that learns a guide's labels: enough to tell classes apart, too few to learn its mistakes
SAVE_SECONDS = 15.0  # between saves of an unfinished training


class Judge(nn.Module):
    """(B, C, H, W) in [−1, 1] -> features (B, 64) or logits (B, K)."""

    def __init__(self, channels: int, classes: int, height: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = channels
        for wider in [32, *[64] * max(1, round(math.log2(height)) - 1)]:  # halve until 2–4 pixels are left
            layers += [nn.Conv2d(width, wider, 3, padding=1), nn.BatchNorm2d(wider), nn.SiLU()]
            layers += [nn.MaxPool2d(2)] if width >= 32 else []
            width = wider
        self.trunk = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, 64), nn.SiLU())
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.trunk(x))


def bundled(channels: int, classes: int, height: int) -> tuple[Judge, str]:
    return _read(Judge(channels, classes, height), BUNDLED), file_sha256(BUNDLED)


def trained_on(data: Dataset, show_progress: bool = False, steps: int | None = None) -> tuple[Judge, str]:
    """The judge of this data set, trained once and kept in the user's cache under the data's hash."""
    judge = Judge(data.shape[0], len(data.classes), data.shape[1])
    name = f"judge-{data.sha256[:32]}" + ("" if steps is None else f"-{steps}")
    found, shapes = kept(name), {key: value.shape for key, value in judge.state_dict().items()}
    if found is not None and {key: value.shape for key, value in found.items()} != shapes:
        say(f"{file_of(name)} holds another judge than this version's; it is made again")
        forget(name)
    weights = remembered(name, lambda: dict(fit(judge, data, show_progress, steps, name).state_dict()))
    judge.load_state_dict(weights)
    forget(f"{name}-unfinished")
    return judge.eval(), hashlib.sha256(save(weights)).hexdigest()


def fit(
    judge: Judge, data: Dataset, show_progress: bool = False, steps: int | None = None, name: str | None = None
) -> Judge:
    """Adam with linear decay on slightly noisy images; leaves the caller's random state alone.

    name: in the cache, where an unfinished training is kept every few seconds, and goes on with the same bits.
    """
    labelled = data.y != UNLABELED
    x, y, steps = some(data.x, labelled), data.y[labelled], steps or STEPS
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for module in judge.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                module.reset_parameters()
        optimiser = torch.optim.Adam(judge.parameters(), lr=2e-3)
        done = 0 if name is None else resume(judge, optimiser, f"{name}-unfinished")
        saved = time.monotonic()
        with bar(f"training the judge of {data.name}", steps, done, show=show_progress) as tick:
            for step in range(done, steps):
                pick = torch.randint(len(x), (BATCH,))
                optimiser.param_groups[0]["lr"] = 2e-3 * (1 - step / steps)
                images = x[pick]
                loss = F.cross_entropy(judge(images + 0.1 * torch.randn_like(images)), y[pick])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                tick(1, "")
                if name is not None and time.monotonic() - saved > SAVE_SECONDS:
                    keep(f"{name}-unfinished", unfinished(judge, optimiser, step + 1))
                    saved = time.monotonic()
    return judge.eval()


def unfinished(judge: Judge, optimiser: torch.optim.Optimizer, step: int) -> dict[str, Tensor]:
    """All that the next step depends on."""
    moments = optimiser.state_dict()["state"]
    return {
        **{f"judge.{key}": value for key, value in judge.state_dict().items()},
        **{f"adam.{i}.{key}": value for i, values in moments.items() for key, value in values.items()},
        "step": torch.tensor(step),
        "random": torch.get_rng_state(),
    }


def resume(judge: Judge, optimiser: torch.optim.Optimizer, name: str) -> int:
    """Go on from what was kept, if it fits; the steps that are done."""
    found = kept(name)
    if found is None:
        return 0
    begun = judge.state_dict()
    weights = {key: found.get(f"judge.{key}") for key in begun}
    if any(w is None or w.shape != begun[key].shape for key, w in weights.items()):
        return 0
    judge.load_state_dict(weights)
    moments: dict[int, dict[str, Tensor]] = {}
    for key, value in found.items():
        if key.startswith("adam."):
            _, i, what = key.split(".", 2)
            moments.setdefault(int(i), {})[what] = value
    optimiser.load_state_dict({"state": moments, "param_groups": optimiser.state_dict()["param_groups"]})
    torch.set_rng_state(found["random"])
    return int(found["step"])


def _read(judge: Judge, file: Path) -> Judge:
    judge.load_state_dict(read_tensors(file))
    return judge.eval()


def _write(judge: Judge, file: Path) -> None:
    write_bytes(file, save(judge.state_dict()))


if __name__ == "__main__":
    digits = load_data("builtin:digits")
    judge = fit(Judge(1, 10, 8), digits)
    _write(judge, BUNDLED)
    right = (judge(digits.x_test).argmax(-1) == digits.y_test).float().mean()
    print(f"{BUNDLED.name}: test accuracy {right:.4f}, sha256 {file_sha256(BUNDLED)}")
