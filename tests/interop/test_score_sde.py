"""Checkpoints of score_sde_pytorch: the original's own outputs, and files that must not be believed.

vectors/ncsnpp_tiny.safetensors holds weights, inputs and outputs of the original network.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from selfcal.core.errors import SelfcalError
from selfcal.interop import score_sde

HERE = Path(__file__).parent
TINY = HERE / "vectors" / "ncsnpp_tiny.safetensors"
SMALL = HERE.parents[2] / "shared" / "vectors" / "ncsnpp_small.safetensors"


def matches(path, vector):
    """s(2x − 1, 2σ) = s_original(x, σ)/2, relative to the largest value of each image."""
    x, sigma, expected = vector["input.x"], vector["input.sigma"], vector["output.score"] / 2
    error = (score_sde.load(path)(2 * x - 1, 2 * sigma) - expected).flatten(1).abs().amax(1)
    return (error / expected.flatten(1).abs().amax(1)).max().item()


@pytest.mark.parametrize("path", [TINY, pytest.param(SMALL, marks=pytest.mark.skipif(not SMALL.exists(), reason=""))])
def test_the_score_is_the_originals_in_our_units(path):
    assert matches(path, load_file(path)) < 1e-4


def test_the_architecture_is_recognised():
    read = score_sde.read(TINY)
    assert read.channels == 3
    assert read.architecture == {"width": 4, "multipliers": [1, 2], "blocks": 2, "attention": [1]}
    assert (read.sigma_min, read.sigma_max) == pytest.approx((0.02, 100.0))


def original():
    """What the original saves: its model as trained on several GPUs, and a bare list of averages."""
    model = {
        f"module.{name.removeprefix('model.')}": tensor
        for name, tensor in sorted(load_file(TINY).items(), key=lambda item: order(item[0]))
        if name.startswith("model.")
    }
    trainable = [name for name in model if name not in ("module.sigmas", "module.all_modules.0.W")]
    averages = [model[name].clone() for name in trainable]
    return {"optimizer": {"state": {}}, "model": model, "ema": {"decay": 0.999, "shadow_params": averages}, "step": 7}


def order(name):
    """As the original registers its parameters: by number, weight before bias."""
    parts = name.split(".")
    inner = ["GroupNorm_0", "Conv_0", "Dense_0", "GroupNorm_1", "Conv_1", "Conv_2", "NIN_0", "NIN_1", "NIN_2", "NIN_3"]
    rank = inner.index(parts[3]) if len(parts) > 4 and parts[3] in inner else 0
    return (int(parts[2]) if len(parts) > 2 else -1, rank, parts[-1] in ("bias", "b"))


def test_averaged_weights_are_used(tmp_path):
    saved = original()
    for tensor in saved["model"].values():
        tensor.mul_(1.5)  # the averages are what must match
    saved["model"]["module.all_modules.0.W"].div_(1.5)
    torch.save(saved, tmp_path / "checkpoint.pth")
    assert matches(tmp_path / "checkpoint.pth", load_file(TINY)) < 1e-4
    del saved["ema"]
    torch.save(saved, tmp_path / "plain.pth")
    assert matches(tmp_path / "plain.pth", load_file(TINY)) > 0.1


class Bomb:
    """Unpickling this would create a file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


@pytest.mark.parametrize("entry", ["whole", "model", "ema", "bare pickle"])
def test_malicious_files_run_no_code(tmp_path, entry):
    mark, file = tmp_path / "ran", tmp_path / "checkpoint.pth"
    if entry == "bare pickle":
        file.write_bytes(pickle.dumps(Bomb(mark)))
    else:
        torch.save(Bomb(mark) if entry == "whole" else original() | {entry: Bomb(mark)}, file)
    with pytest.raises(SelfcalError, match="is not a checkpoint of plain tensors"):
        score_sde.load(file)
    assert not mark.exists()
    pickle.loads(pickle.dumps(Bomb(mark))).close()
    assert mark.exists(), "the file would have been harmful"


def test_truncated_unrelated_and_missing_files(tmp_path):
    whole = tmp_path / "whole.pth"
    torch.save(original(), whole)
    for size in (0, 1, 100, 5000, whole.stat().st_size - 100):
        cut = tmp_path / f"cut-{size}.pth"
        cut.write_bytes(whole.read_bytes()[:size])
        with pytest.raises(SelfcalError, match="is damaged"):
            score_sde.load(cut)
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(TINY.read_bytes()[:1000])
    with pytest.raises(SelfcalError, match="is damaged"):
        score_sde.load(cut)
    with pytest.raises(SelfcalError, match="does not exist"):
        score_sde.load(tmp_path / "nowhere.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(SelfcalError, match="no entry 'model'"):
        score_sde.load(tmp_path / "list.pth")
    torch.save({"model": {"conv.weight": torch.zeros(3)}}, tmp_path / "other.pth")
    with pytest.raises(SelfcalError, match="no weights called all_modules"):
        score_sde.load(tmp_path / "other.pth")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda m: m.pop("model.all_modules.0.W"),  # positional embedding: a variance-preserving model
        lambda m: m.pop("model.all_modules.5.Conv_0.weight"),
        lambda m: m.update({"model.all_modules.5.Conv_0.weight": torch.zeros(4, 5, 3, 3)}),
        lambda m: m.update({"model.all_modules.5.Conv_9.weight": torch.zeros(4)}),
        lambda m: m.update({"model.all_modules.99.weight": torch.zeros(4)}),
        lambda m: m.update({"model.all_modules.x": torch.zeros(4)}),
        lambda m: m.update({"model.all_modules.5.Conv_0.weight": torch.full((4, 4, 3, 3), torch.nan)}),
    ],
)
def test_other_architectures_are_refused_in_words(tmp_path, spoil):
    weights = load_file(TINY)
    spoil(weights)
    save_file(weights, tmp_path / "w.safetensors")
    with pytest.raises(SelfcalError, match=r"is not the NCSN\+\+|NaN or infinite"):
        score_sde.load(tmp_path / "w.safetensors")


def test_averages_that_do_not_fit_are_refused(tmp_path):
    saved = original()
    saved["ema"]["shadow_params"].pop()
    torch.save(saved, tmp_path / "c.pth")
    with pytest.raises(SelfcalError, match="do not fit its model"):
        score_sde.load(tmp_path / "c.pth")


FIRST = "module.all_modules.3.weight"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda c: c["model"].update({FIRST: torch.zeros(1, 1, 1, 1).expand(10**5, 10**5, 3, 3)}), "more numbers"),
        (lambda c: c["model"].update({FIRST: c["model"][FIRST].to(torch.complex64)}), "not real ones"),
        (lambda c: c["model"].update({FIRST: c["model"][FIRST].to("meta")}), "holds no numbers"),
        (lambda c: c["model"].update({FIRST: torch.zeros(0, 1, 3, 3)}), r"is not the NCSN\+\+|do not fit"),
        (lambda c: c["model"].update(sigmas=torch.tensor([0.01, torch.nan])), "no range of σ"),
        (lambda c: c["model"].update(sigmas=torch.zeros(0)), "no range of σ"),
        (lambda c: c["model"].update(sigmas=torch.tensor([-1.0, 50.0])), "no range of σ"),
        (lambda c: c["ema"].update(shadow_params=7), "do not fit"),
        (lambda c: c["ema"].update(shadow_params=torch.zeros(3)), "do not fit"),
        (lambda c: c["ema"]["shadow_params"].__setitem__(0, None), "holds no numbers"),
    ],
)
def test_what_a_checkpoint_claims_is_checked_before_memory_is_spent(tmp_path, spoil, message):
    saved = original()
    spoil(saved)
    torch.save(saved, tmp_path / "c.pth")
    with pytest.raises(SelfcalError, match=message):
        score_sde.load(tmp_path / "c.pth")
