"""Any module is adopted with its conventions; wrong ones are refused before training, by what was seen."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import plain_ddpm
import selfcal
from plain_ddpm import BETAS, LEVELS, PlainDDPM
from selfcal import cli
from selfcal.core.errors import SelfcalError
from selfcal.data.sources import load_data
from selfcal.evaluation import features
from selfcal.interop.adopt import open_source
from selfcal.interop.conventions import Conventions
from selfcal.metrics import generation_accuracy
from selfcal.nets.own_module import READINGS, own_form

KEPT = (1 - BETAS.double()).cumprod(0)
SIGMAS = ((1 - KEPT) / KEPT).sqrt()
DDPM = {"predicts": "epsilon", "betas": BETAS}
SMALL = {"classifier.width": 8}


@pytest.fixture(scope="module")
def net():
    return plain_ddpm.trained()


@pytest.fixture(scope="module")
def run(net, tmp_path_factory):
    settings = {"classifier.width": 128, "classifier.steps": 800}
    out = tmp_path_factory.mktemp("adopted") / "run"
    return selfcal.adopt(net, "digits", "4/class", "cg", out, settings=settings, module="plain_ddpm:PlainDDPM", **DDPM)


def test_four_labels_per_class_guide_a_plain_ddpm(run):
    judge = features.find("auto", run.data)
    free, guided = (
        generation_accuracy(judge.classify(samples.x), samples.y)
        for samples in (run.sample(count=400, scale=scale) for scale in (0.0, 2.0))
    )
    assert guided >= max(0.5, 2 * free), (free, guided)


def test_the_adopted_score_is_the_modules_own(run, net):
    """s = −ε/σ at its own input x_σ √ᾱ; and the module itself was left alone."""
    level = 321
    sigma = float(SIGMAS[level])
    x = torch.randn(4, 1, 8, 8) * sigma
    expected = -net(x * KEPT[level].sqrt().float(), torch.full((4,), level)) / sigma
    torch.testing.assert_close(run.networks["score"](x, torch.full((4,), sigma)), expected, rtol=1e-3, atol=1e-4)
    assert all(p.requires_grad for p in net.parameters())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"predicts": "v"}, r'does not predict "v": .*doing nothing.*did you mean predicts="epsilon"'),
        ({"predicts": "x0"}, r'did you mean predicts="epsilon"'),
        ({"predicts": "score"}, r'did you mean predicts="epsilon"'),
        (
            {"betas": torch.linspace(1e-2, 0.02**0.5, LEVELS) ** 2},
            "another schedule than given: at σ = .* when told of",
        ),
        ({"betas": torch.linspace(1e-4, 0.01, LEVELS)}, "another schedule than given"),
        ({"betas": torch.linspace(1e-4, 0.03, LEVELS)}, "another schedule than given"),
        ({"betas": torch.linspace(1e-4, 0.02, 500)}, "another schedule than given"),
        ({"betas": BETAS.flip(0)}, "another schedule than given|does not denoise"),
        ({"time": "sigma"}, "does not denoise as given: at σ = .* mean image"),
        ({"betas": None, "sigmas": (0.02, 80.0)}, "does not denoise as given"),
        ({"predicts": None}, "say what the module predicts"),
        ({"predicts": "eps"}, "did you mean 'epsilon'"),
        ({"betas": None}, "one of betas=, alphas_cumprod= or sigmas=; found none"),
        ({"alphas_cumprod": KEPT}, "found betas and alphas_cumprod"),
        ({"betas": -BETAS}, "they lie between 0 and 1"),
        ({"betas": [0.1]}, "a list of 2 to"),
        ({"betas": "linear"}, "a list of numbers, not str"),
        ({"betas": None, "sigmas": [1.0, 3.0, 2.0]}, "must rise or fall"),
        ({"betas": None, "sigmas": [1.0, 3.0], "predicts": "v"}, "mixes image and noise as DDPM does"),
        ({"time": "seconds"}, '"index", "sigma", or a function'),
        ({"time": lambda sigma: sigma.floor()}, "must be smooth"),
        ({"module": "os"}, "name the constructor"),
        ({"module": "my package:f"}, "name the constructor"),
        ({"module": partial(PlainDDPM, depth=2)}, "other weights than the adopted"),
        ({"subfolder": "unet"}, "is for folders"),
    ],
)
def test_wrong_conventions_are_refused_before_anything_is_written(net, tmp_path, changes, message):
    with pytest.raises(SelfcalError, match=message):
        selfcal.adopt(net, "digits", "4/class", "cg", tmp_path / "no", **(DDPM | changes))
    assert not (tmp_path / "no").exists()


def test_what_is_no_model_is_refused(net, tmp_path):
    for source, message in (
        (3, "a int cannot be adopted"),
        (lambda x, t: x[:, :, :4], r"gives shaped \(.*a tensor shaped as x is needed"),
        (lambda x, t: None, "gives a NoneType"),
        (lambda x, t: x * float("nan"), "NaN or infinite"),
        (lambda x: x, "fails on x"),
        (PlainDDPM(), "does not|another schedule"),  # untrained
    ):
        with pytest.raises(SelfcalError, match=message):
            selfcal.adopt(source, "digits", "4/class", "cg", tmp_path / "no", **DDPM)
    with pytest.raises(SelfcalError, match="predicts= is for modules"):
        selfcal.adopt(tmp_path, "digits", "4/class", "cg", tmp_path / "no", predicts="v")


class Reworded(nn.Module):
    """The same model as people might have parametrised it otherwise."""

    def __init__(self, net, predicts, keeps_variance, told):
        super().__init__()
        self.net, self.predicts, self.keeps_variance, self.told = net, predicts, keeps_variance, told

    def forward(self, x, t):
        level = self.told(t)
        whole = level.round().long().clamp(0, LEVELS - 1)
        sigma = SIGMAS[whole].float()[:, None, None, None]
        total = (1 + sigma**2).sqrt()
        noisy = x * total if self.keeps_variance else x
        denoised = noisy - sigma * self.net(noisy / total, level)
        skip, out = READINGS[self.predicts](sigma, total if self.keeps_variance else torch.ones_like(total))
        return (denoised - skip * noisy) / out


@pytest.mark.parametrize(
    ("predicts", "conventions", "told"),
    [
        ("v", {"alphas_cumprod": KEPT}, lambda t: t),
        ("score", {"betas": BETAS}, lambda t: t),
        ("x0", {"betas": BETAS.tolist()}, lambda t: t),
        ("epsilon", {"sigmas": SIGMAS}, lambda t: t),
        ("denoised", {"sigmas": SIGMAS.flip(0)}, lambda t: LEVELS - 1 - t),
        ("score", {"sigmas": (SIGMAS[0], SIGMAS[-1])}, lambda t: level_of(t)),
        ("epsilon", {"sigmas": SIGMAS, "time": lambda s: s.log() / 4}, lambda t: level_of((4 * t).exp())),
    ],
)
def test_other_conventions_come_to_the_same_score(net, predicts, conventions, told):
    """Each is the DDPM in other words; wrapped, all denoise as it does, at σ on and between the levels."""
    data = load_data("digits")
    reading = "x0" if predicts == "denoised" else predicts
    other = Reworded(net, reading, "sigmas" not in conventions, told)
    adopted = open_source(other, data, Conventions(predicts=predicts, **conventions))
    plain = open_source(net, data, Conventions(**DDPM))
    for level in (40, 250, 600):
        x, sigma = data.x[:8] + SIGMAS[level].float() * torch.randn(8, 1, 8, 8), SIGMAS[level].float().expand(8)
        torch.testing.assert_close(adopted.model.denoise(x, sigma), plain.model.denoise(x, sigma), rtol=0, atol=2e-2)


def level_of(sigma):
    form = own_form({"form": Conventions(**DDPM).form()})
    return form.level(sigma.float())


def test_a_schedule_that_ends_in_pure_noise(net):
    """ᾱ = 0 at its last level: that one is left out, whatever the network is told."""
    kept = KEPT.clone()
    kept[-1] = 0
    for time in ("index", "sigma", torch.log):
        form = Conventions("epsilon", alphas_cumprod=kept, time=time).form()
        assert form["sigmas"][-1] == pytest.approx(float(SIGMAS[-2]))
    with pytest.raises(SelfcalError, match="levels of σ below"):
        Conventions("epsilon", alphas_cumprod=[1e-12, 0.0]).form()


class Embedded(nn.Module):
    """Takes whole levels only, as nets with a table of embeddings do."""

    def __init__(self, net):
        super().__init__()
        self.net, self.levels = net, nn.Embedding.from_pretrained(torch.arange(float(LEVELS))[:, None])

    def forward(self, x, t):
        return self.net(x, self.levels(t)[:, 0])


def test_a_table_of_levels_gets_whole_numbers(net):
    data = load_data("digits")
    adopted = open_source(Embedded(net), data, Conventions(**DDPM))
    assert adopted.settings["score.adopted"]["whole"]
    assert not open_source(net, data, Conventions(**DDPM)).settings["score.adopted"]["whole"]
    with pytest.raises(SelfcalError, match="fails on x"):
        open_source(Embedded(net), data, Conventions("epsilon", betas=torch.linspace(1e-4, 0.02, 2000)))


def test_another_process_brings_the_module_along(run, net, tmp_path):
    """The constructor's name is in the run, for people: nothing is imported by it, and nothing called."""
    noted = json.loads((run.path / "config.json").read_text())["settings"]["score"]["adopted"]
    assert noted["module"] == "plain_ddpm:PlainDDPM"
    script = f"""
import sys, selfcal
run = selfcal.load({str(run.path)!r})
print(run.predict_proba(run.data.x_test[:5]).shape)  # the guide needs no module
try:
    run.sample(count=1)
except selfcal.SelfcalError as error:
    print(error)
assert "plain_ddpm" not in sys.modules
sys.path.insert(0, {str(Path(plain_ddpm.__file__).parent)!r})
from plain_ddpm import PlainDDPM
selfcal.load({str(run.path)!r}, module=PlainDDPM).sample(count=10, seed=5).save({str(tmp_path / "made.npz")!r})
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "made by plain_ddpm:PlainDDPM, whose code is not in the run" in done.stdout
    import numpy as np

    made = torch.as_tensor(np.load(tmp_path / "made.npz")["x"]).float()
    made = made if made.min() < -0.5 else made / 127.5 - 1
    torch.testing.assert_close(made, run.sample(count=10, seed=5).x, rtol=0, atol=1e-2)


def test_a_strangers_name_is_never_called(run, tmp_path):
    """A config.json that names another constructor changes a sentence and nothing else."""
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", str(run.path), str(copy)], check=True)
    text = (copy / "config.json").read_text()
    (copy / "config.json").write_text(text.replace("plain_ddpm:PlainDDPM", "os:abort"))
    with pytest.raises(SelfcalError, match=r"made by os:abort"):
        selfcal.load(copy).sample(count=1)


def test_another_module_is_refused_by_load(run, net):
    with pytest.raises(SelfcalError, match="is not the one that it adopted"):
        selfcal.load(run.path, module=lambda: PlainDDPM(depth=2)).sample(count=1)
    with pytest.raises(SelfcalError, match="gives a dict"):
        selfcal.load(run.path, module=dict)

    class Louder(PlainDDPM):
        def forward(self, x, t):
            return 1.3 * super().forward(x, t)

    with pytest.raises(SelfcalError, match="computes something else"):
        selfcal.load(run.path, module=Louder).sample(count=1)
    assert selfcal.load(run.path, module=PlainDDPM()).sample(count=1, steps=2).x.isfinite().all()


def test_a_function_is_adopted_too_and_the_same_call_resumes(net, tmp_path):
    """It has no weights to keep; in the same process the run samples, and adopting again finds it finished."""

    def answer(x, t):
        with torch.no_grad():
            return net(x, t)

    def again():
        return selfcal.adopt(answer, "digits", "4/class", "cg", tmp_path / "r", steps=2, settings=SMALL, **DDPM)

    first = again().sample(count=2, steps=3).x
    assert torch.equal(again().sample(count=2, steps=3).x, first)
    assert torch.equal(selfcal.load(tmp_path / "r", module=answer).sample(count=2, steps=3).x, first)
    with pytest.raises(SelfcalError, match="holds another run"):
        selfcal.adopt(net, "digits", "4/class", "cg", tmp_path / "r", steps=2, settings=SMALL, **DDPM)


def test_points_are_adopted_too(tmp_path):
    """A score in closed form, of one Gaussian as wide as the moons."""
    spread = load_data("moons").x.var()

    def score(x, sigma):
        return -x / (spread + sigma[:, None] ** 2)

    run = selfcal.adopt(score, "moons", 0.05, "cg", tmp_path / "r", steps=2, predicts="score", sigmas=(0.01, 50.0))
    assert run.sample(count=4, steps=3).x.shape == (4, 2)


def test_commands_say_what_a_module_lacks(run, capsys, tmp_path):
    for arguments in (["sample", str(run.path), "--out", str(tmp_path / "s.npz")], ["evaluate", str(run.path)]):
        with pytest.raises(SystemExit) as stop:
            cli.main(arguments)
        assert stop.value.code == 2
        assert "is a module of your own, made by plain_ddpm:PlainDDPM" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(SystemExit):
        cli.main(["show", str(run.path)])
    assert "a module of your own that predicts epsilon" in " ".join(capsys.readouterr().out.split())


EXPORTED = """
import sys
sys.modules["selfcal"] = None
import torch
from diffusers import DiffusionPipeline
pipe = DiffusionPipeline.from_pretrained(sys.argv[1], trust_remote_code=True)
try:
    pipe(class_labels=3)
except ValueError as error:
    print(error)
sys.path.insert(0, sys.argv[2])
from plain_ddpm import trained
pipe.use_module(trained())
made = pipe(class_labels=[3, 3, 5, 5], guidance_scale=2.0, num_inference_steps=6, output_type="pt",
            generator=torch.Generator().manual_seed(int(sys.argv[3]))).images
torch.save(made, sys.argv[1] + "/made.pt")
"""


def test_export_writes_the_guide_and_says_what_is_missing(run, tmp_path, capsys):
    """The pipeline takes the module along in a process without selfcal, and makes the run's own images."""
    pytest.importorskip("diffusers")
    from test_export import SEED, without_selfcal

    with pytest.raises(SystemExit) as stop:
        cli.main(["export", str(run.path), "--out", str(tmp_path / "pipe")])
    assert not stop.value.code
    said = " ".join(capsys.readouterr().out.split())
    assert "the guide is written; the score model is a module of your own" in said
    assert "pipe.use_module(net)" in (tmp_path / "pipe" / "README.md").read_text()
    assert not (tmp_path / "pipe" / "score").exists()
    here = Path(plain_ddpm.__file__).parent
    printed = without_selfcal(tmp_path, EXPORTED, tmp_path / "pipe", here, SEED)
    assert "plain_ddpm:PlainDDPM, whose code is not here" in printed
    mine = run.sample(classes=[3, 5], count=4, scale=2.0, steps=6).x
    torch.testing.assert_close(torch.load(tmp_path / "pipe" / "made.pt"), (mine + 1) / 2, rtol=0, atol=1e-4)
