"""bf16, tf32 and compiled networks: near what fp32 gives, logits and energies always in fp32; and batches ahead."""

from __future__ import annotations

import threading

import pytest
import torch

import selfcal
from selfcal.core.errors import SelfcalError
from selfcal.core.settings import resolve
from selfcal.data.pool import Pool
from selfcal.diffusion.guidance import inner_unconditional, likelihood_score
from selfcal.methods.stage import Context
from selfcal.methods.table import METHODS
from selfcal.nets.builders import build_classifier, build_score
from selfcal.nets.precision import in_precision
from selfcal.training import stage as stages
from selfcal.training.ahead import Ahead
from selfcal.training.plan import Trial
from selfcal.training.processes import accelerator
from selfcal.training.request import Request
from selfcal.training.stage import Batches

SMALL = {"width": 16, "blocks": 1, "multipliers": (1, 2), "attention": (4,), "dropout": 0.0}
X, SIGMA = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(1)), torch.logspace(-1, 1, 6)
BF16 = 2**-7  # relative rounding of a product; a network's error is a few of them


def settings(network="ncsnpp", **more):
    changes = {
        f"{role}.{key}": v for role in ("score", "classifier") for key, v in (SMALL | {"network": network}).items()
    }
    return resolve("photos16", changes | more)


def grown(network):
    """As after some training: fresh networks end in layers that are almost zero."""
    with torch.no_grad():
        for p in network.parameters():
            p.add_(0.05 * torch.randn(p.shape))
    return network.eval()


def apart(a, b):
    return float((a - b).detach().norm() / b.detach().norm())


@pytest.mark.parametrize("network", ["ncsnpp", "mlp"])
@pytest.mark.parametrize("head", ["energy", "pooled"])
def test_bf16_is_near_and_logits_are_fp32(network, head):
    classifier = grown(build_classifier(settings(network, **{"classifier.head": head}), (3, 8, 8), 4))
    half = in_precision(classifier, "bf16")
    logits = half(X, SIGMA)
    assert logits.dtype == torch.float32
    assert 0 < apart(logits, classifier(X, SIGMA)) < 4 * BF16
    assert apart(inner_unconditional(half)(X, SIGMA), inner_unconditional(classifier)(X, SIGMA)) < 8 * BF16
    y = torch.arange(6) % 4
    assert apart(likelihood_score(half, X, SIGMA, y), likelihood_score(classifier, X, SIGMA, y)) < 16 * BF16
    score = grown(build_score(settings(network), (3, 8, 8), 4))
    denoised = (in_precision(f, "bf16")(X, SIGMA) * SIGMA.view(-1, 1, 1, 1) for f in (score,))
    assert apart(next(denoised), score(X, SIGMA) * SIGMA.view(-1, 1, 1, 1)) < 4 * BF16


def test_a_large_energy_keeps_differences_of_classes():
    """Upon an offset of thousands, which bf16 logits would round to the next sixteen."""
    classifier = grown(build_classifier(settings(), (3, 8, 8), 4))
    with torch.no_grad():
        x, level = 30 * X, torch.full((6,), 1e-3)
        logits, exact = in_precision(classifier, "bf16")(x, level), classifier(x, level)
    assert logits.abs().min() > 1000

    def differences(values):
        return values - values.mean(-1, keepdim=True)

    assert apart(differences(logits), differences(exact)) < 4 * BF16
    assert apart(differences(exact.bfloat16().float()), differences(exact)) > 4 * BF16


def trial(method, **more):
    wanted = Request("digits", method, "2/class", preset="photos16", settings={**changes(), **more}).prepared()
    batches = Batches(wanted.data.x, Pool(wanted.labels))
    stage = METHODS[method].stages(wanted.settings)[-1]
    score = build_score(wanted.settings, wanted.data.shape, 0).eval().requires_grad_(False)
    context = Context(wanted.settings, batches.pool.label_fraction, {"score": score})
    return Trial(stage, context, batches, wanted.data, accelerator())


def changes():
    found = {f"{role}.{key}": v for role in ("score", "classifier", "conditional") for key, v in SMALL.items()}
    return found | {f"{role}.batch": 8 for role in ("score", "classifier", "conditional")}


@pytest.mark.parametrize("method", ["cg-sc-all", "cg-dlsm", "cg-jr", "cg-jem", "cond"])
def test_gradients_of_every_kind_of_term_in_bf16(method):
    """Gradients of gradients included; the whole gradient within a few roundings of fp32's."""
    found = {}
    for precision in ("fp32", "bf16"):
        torch.manual_seed(0)
        one = trial(method, **{"run.precision": precision, "terms.jem_steps": 2})
        grown(one.learner.network)
        torch.manual_seed(1)
        one.step(8)
        found[precision] = torch.cat([p.grad.flatten() for p in one.learner.network.parameters() if p.grad is not None])
        assert all(p.dtype == torch.float32 for p in one.learner.network.parameters())
    assert 0 < apart(found["bf16"], found["fp32"]) < 0.1


def test_tf32_is_fp32_on_a_cpu(tmp_path):
    runs = [
        selfcal.train("moons", "cg", 0.03, tmp_path / p, steps=3, settings={"run.precision": p})
        for p in ("fp32", "tf32")
    ]
    assert runs[0].describe()["weights_sha256"] == runs[1].describe()["weights_sha256"]
    with pytest.raises(SelfcalError, match=r"run\.precision = 'fp16'"):
        selfcal.train("moons", "cg", 0.03, tmp_path / "r", settings={"run.precision": "fp16"})


def test_a_run_in_bf16_continues_exactly_and_samples(tmp_path):
    how = {**changes(), "run.precision": "bf16", "run.save_every": 2}
    for out, steps in (("whole", 4), ("parts", 2), ("parts", 4)):
        how |= {f"{role}.decay": 0.0 for role in ("score", "classifier")}
        run = selfcal.train(
            "digits", "cg-sc-all", "2/class", tmp_path / out, steps=steps, preset="photos16", settings=how
        )
    assert run.describe()["weights_sha256"] == selfcal.load(tmp_path / "whole").describe()["weights_sha256"]
    assert run.sample(count=2, steps=2).x.isfinite().all()


@pytest.mark.timeout(900)
def test_compiled_networks_give_the_same(tmp_path):
    """With the inductor backend: a score model and a plain guide in training, both in sampling."""
    runs = {}
    for compiles in (False, True):
        how = {**changes(), "run.compile": compiles}  # few layers: each becomes a kernel that a compiler works on
        how |= {"score.multipliers": (1,), "classifier.network": "mlp"}
        out = tmp_path / str(compiles)
        runs[compiles] = selfcal.train("digits", "cg", "2/class", out, steps=2, preset="photos16", settings=how)
    for role, network in runs[True].networks.items():
        for name, value in runs[False].networks[role].state_dict().items():
            torch.testing.assert_close(network.state_dict()[name], value, rtol=1e-3, atol=1e-4)
    a, b = (runs[c].sample(count=3, steps=2).x for c in (False, True))
    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


def test_a_compiled_guide_of_images_gives_the_same_logits_and_gradients():
    """Traced and differentiated by the compiler; without its last stage, which writes C++ for minutes."""
    classifier = grown(build_classifier(settings(), (3, 8, 8), 4))
    y = torch.arange(6) % 4

    def found(network):
        classifier.zero_grad()
        torch.nn.functional.cross_entropy(network(X, SIGMA), y).backward()
        by_weights = torch.cat([p.grad.flatten() for p in classifier.parameters()])
        return network(X, SIGMA), likelihood_score(network, X, SIGMA, y), by_weights

    plain = found(classifier)
    for precision, near in (("fp32", 1e-4), ("bf16", 16 * BF16)):
        with_compiler = build_classifier(settings(), (3, 8, 8), 4).eval()
        with_compiler.load_state_dict(classifier.state_dict())
        classifier = with_compiler
        classifier.compile(backend="aot_eager")
        for a, b in zip(found(in_precision(classifier, precision)), plain, strict=True):
            assert a.dtype == torch.float32
            assert apart(a, b) < near


def test_which_stages_differentiate_twice():
    """Those are trained as they are: torch.compile differentiates once."""
    context = Context(resolve("images"), 0.02, {"score": None})

    def twice(method):
        return {s.role: s.objective(context).differentiates_twice for s in METHODS[method].stages(context.settings)}

    assert twice("cg") == twice("cg-jem") == twice("cg-robust") == {"score": False, "classifier": False}
    for method in ("cg-sc-all", "cg-sc-labeled", "cg-jr", "cg-dlsm", "cg-sc-online"):
        assert twice(method) == {"score": False, "classifier": True}
    assert twice("cfg-all") == {"conditional": False}


# --- batches ahead -----------------------------------------------------------------------------------


def test_batches_ahead_are_the_same_drawn_in_another_thread(tmp_path, monkeypatch):
    threads, plain = set(), stages.random_state
    first = selfcal.train("moons", "cg-sc-all", 0.03, tmp_path / "a", steps=5)

    def watched(seed, name, step):
        threads.add(threading.current_thread().name)
        return plain(seed, name, step)

    monkeypatch.setattr(stages, "random_state", watched)
    monkeypatch.setattr(stages, "wants_ahead", lambda device: True)
    second = selfcal.train("moons", "cg-sc-all", 0.03, tmp_path / "b", steps=5)
    assert first.describe()["weights_sha256"] == second.describe()["weights_sha256"]
    assert (first.path / "log.jsonl").read_text() == (second.path / "log.jsonl").read_text()
    assert len(threads) > 1


def test_ahead_follows_wherever_the_steps_go():
    asked = []

    def draw(step):
        asked.append(step)
        return step, step

    ahead = Ahead(draw, 10)
    assert [ahead(step)[0] for step in (0, 1, 2, 7, 8, 3, 9)] == [0, 1, 2, 7, 8, 3, 9]
    assert max(asked) == 9
    ahead.thread.shutdown()
    assert len(asked) == 7 + 3, "one was drawn in vain at each leap"


def test_an_error_while_drawing_is_the_step_s():
    def draw(step):
        if step == 1:
            raise SelfcalError("gone")
        return step, step

    ahead = Ahead(draw, 3)
    ahead(0)
    with pytest.raises(SelfcalError, match="gone"):
        ahead(1)
