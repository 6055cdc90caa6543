"""A generator joins a sampler and a guide, and adds nothing of its own."""

from __future__ import annotations

import weakref
from dataclasses import replace

import pytest
import torch

from oracle import three_classes
from selfcal.core.errors import SelfcalError
from selfcal.core.randomness import random_state
from selfcal.diffusion.generator import Generator, Sampling, class_index, slices, spread
from selfcal.diffusion.guidance import GUIDES
from selfcal.diffusion.noise import Noise
from selfcal.diffusion.samplers import SAMPLERS
from selfcal.diffusion.scores import UNLABELED

MIXTURE = three_classes()
NOISE = Noise(0.05, 10.0)


def told_the_class(x, sigma, y):
    """The exact conditional score, and the unconditional one for the null token."""
    known = MIXTURE.conditional_score(x, sigma, y.clamp(min=0))
    return torch.where((y == UNLABELED)[:, None], MIXTURE.score(x, sigma), known)


NETWORKS = {"score": MIXTURE.score, "classifier": MIXTURE.log_joint, "conditional": told_the_class}
EXACT = Generator(NETWORKS, NOISE, (2,), ("a", "b", "c"), Sampling(1.0, "classifier", "heun", 6), batch=4)
Y = torch.tensor([0, 1, 2, 0, 1, 2, 2])  # two batches, the last one smaller

SCALED = {"classifier", "classifier-free"}
CONDITIONAL = {"classifier", "classifier-only", "conditional", "classifier-free"}


def scale_for(guide):
    return 1.5 if guide in SCALED else 0.0


def by_hand(sampler, guide, scale, seed=3):
    """The sampler and the guide called directly, batch by batch."""
    row, parts = SAMPLERS[sampler], []
    sigmas = row.levels(NOISE, 6)
    for number, y in enumerate(Y.split(4)):
        rng = random_state(seed, "sampling", number)
        x = sigmas[0] * torch.randn(len(y), 2, generator=rng)
        parts.append(row.function(GUIDES[guide].score(NETWORKS, y, scale), x, sigmas, rng=rng))
    return torch.cat(parts)


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_with_every_guide_is_the_two_called_directly(sampler, guide):
    scale = scale_for(guide)
    made = EXACT.sample(Y, Sampling(scale, guide, sampler, 6), seed=3)
    assert torch.equal(made.x, by_hand(sampler, guide, scale))
    assert torch.equal(made.y, Y)
    about = {key: made.made[key] for key in ("guide", "scale", "sampler", "steps", "evaluations", "seed")}
    assert about == {
        "guide": guide,
        "scale": scale,
        "sampler": sampler,
        "steps": 6,
        "evaluations": SAMPLERS[sampler].evaluations(6),
        "seed": 3,
    }


@pytest.mark.parametrize("guide", GUIDES)
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_classes_scale_and_seed_matter_where_they_should(sampler, guide):
    usual = scale_for(guide)

    def sample(y=Y, scale=usual, seed=3):
        return EXACT.sample(y, Sampling(scale, guide, sampler, 6), seed).x

    apart = (sample(y=(Y + 1) % 3) - sample()).abs().amax(1)
    assert (apart > 1e-3).all() if guide in CONDITIONAL else (apart == 0).all()
    if guide != "conditional":  # which refuses a scale
        apart = (sample(scale=3.0) - sample()).abs().amax(1)
        assert (apart > 1e-3).any() if guide in SCALED else (apart == 0).all()
    assert ((sample(seed=4) - sample()).abs().amax(1) > 1e-6).all()


def test_what_is_left_out_is_as_usual():
    asked = EXACT.sample(Y, Sampling(1.0, "classifier", "heun", 6))
    assert torch.equal(EXACT.sample(Y).x, asked.x)
    other = EXACT.sample(Y, Sampling(sampler="euler"))
    assert other.made["steps"] == SAMPLERS["euler"].steps, "the usual steps are the usual sampler's alone"


def test_a_samplers_own_options_reach_it():
    how = Sampling(1.0, "classifier", "dpm++2m-sde", 6)
    without_noise = EXACT.sample(Y, replace(how, options={"eta": 0.0}), seed=3).x
    assert torch.equal(without_noise, EXACT.sample(Y, replace(how, sampler="dpm++2m"), seed=3).x)
    assert not torch.equal(without_noise, EXACT.sample(Y, how, seed=3).x)


def test_images_stay_in_their_range_and_points_do_not():
    push = {"score": lambda x, sigma: 5 * torch.ones_like(x)}
    images = Generator(push, NOISE, (1, 2, 2), ("a",), Sampling(None, "unconditional", "euler", 2))
    assert images.sample(torch.zeros(3, dtype=torch.long)).x.eq(1).all()
    points = replace(images, shape=(2,))
    assert points.sample(torch.zeros(3, dtype=torch.long)).x.min() > 1


def test_predictions_are_the_classifiers_at_the_level_asked_for():
    x = torch.randn(7, 2)
    for sigma, level in ((None, 0.05), (2.0, 2.0)):
        expected = MIXTURE.log_joint(x, torch.full((7,), level)).softmax(-1)
        torch.testing.assert_close(EXACT.predict_proba(x, sigma), expected)
    assert EXACT.predict_proba(x[:0]).shape == (0, 3)
    with pytest.raises(SelfcalError, match=r"inputs are shaped \(7, 3\); expected \(B, 2\)"):
        EXACT.predict_proba(torch.zeros(7, 3))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (Sampling(scale=-1.0), "a finite number of at least 0"),
        (Sampling(scale=float("nan")), "a finite number of at least 0"),
        (Sampling(steps=0), "at least 1 is needed"),
        (Sampling(sampler="hoin"), "did you mean 'heun'"),
        (Sampling(guide="clasifier"), "did you mean 'classifier'"),
        (Sampling(scale=1.0, guide="conditional"), "no guidance to scale"),
        (Sampling(options={"eta": 1.0}), "heun has no such option: eta; it has churn"),
    ],
)
def test_refusals(how, message):
    with pytest.raises(SelfcalError, match=message):
        EXACT.sample(Y, how)


def test_a_guide_without_its_network():
    with pytest.raises(SelfcalError, match="needs a classifier network"):
        replace(EXACT, networks={"score": MIXTURE.score}).sample(Y)


def test_classes_by_name_or_place():
    assert [class_index(("cat", "0", "dog"), c) for c in ("dog", "0", 0, 2)] == [2, 1, 1, 2]
    with pytest.raises(SelfcalError, match="unknown class 'fish'; known: cat, dog"):
        class_index(("cat", "dog"), "fish")


def test_counts_are_spread_evenly_in_order():
    assert spread([2, 0], 5).tolist() == [2, 2, 2, 0, 0]
    with pytest.raises(SelfcalError, match="at least 1 is needed"):
        spread([0], 0)


# --- shares and streams -----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 63, 64, 65, 150, 1000])
def test_slices_are_equal_and_even(count):
    bounds = slices(count)
    assert [i for a, b in bounds for i in range(a, b)] == list(range(count))
    sizes = {b - a for a, b in bounds}
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= 64
    assert len(bounds) == 1 or len(bounds) % 2 == 0


@pytest.mark.parametrize("sampler", ["euler", "heun", "dpm++2m-sde"])
def test_rows_of_a_batch_are_walked_as_in_the_whole(sampler):
    """To the bit, whoever walks the others."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(3, 64), torch.nn.SiLU(), torch.nn.Linear(64, 2))
    networks = {"score": lambda x, sigma: network(torch.cat([x, sigma[:, None].log()], 1)) / sigma[:, None]}
    usual = Sampling(0.0, "unconditional", sampler, 5, {"churn": 10.0} if sampler == "heun" else {})
    generator = Generator(networks, Noise(0.02, 10), (2,), ("a",), usual)
    y = torch.zeros(150, dtype=torch.long)
    whole = generator.sample(y, usual, seed=3).x
    bounds = slices(150)
    parts = [
        generator._walk(y, random_state(3, "sampling", 0), usual, lambda *_: None, slice(bounds[i][0], bounds[j][1]))
        for i, j in ((0, 0), (1, 2), (3, 3))
    ]
    assert torch.equal(torch.cat(parts), whole)


def test_a_drawing_is_what_sampling_gives_and_never_held_whole(tmp_path):
    generator = Generator(
        {"score": lambda x, sigma: -x / sigma[:, None, None, None] ** 2}, Noise(0.02, 10), (1, 4, 4), ("a", "b"),
        Sampling(0.0, "unconditional", "heun", 3), batch=10,
    )  # fmt: skip
    y = torch.arange(25) % 2
    whole, alive = generator.sample(y, seed=1), []
    for part in generator.draw(y, seed=1).parts():
        alive.append(weakref.ref(part))
        assert sum(a() is not None for a in alive) <= 2, "those before are gone"
    for name in ("s.npz", "s.zip", "s", "s.png"):
        generator.draw(y, seed=1).save(tmp_path / f"drawn-{name}")
        whole.save(tmp_path / f"whole-{name}")
        files = [
            sorted(p for p in (tmp_path / f"{how}-{name}").rglob("*") if p.is_file()) for how in ("drawn", "whole")
        ]
        if name != "s":
            files = [[tmp_path / f"drawn-{name}"], [tmp_path / f"whole-{name}"]]
        assert [p.read_bytes() for p in files[0]] == [p.read_bytes() for p in files[1]]
        assert files[0]


# --- who watches ------------------------------------------------------------------------------------------


def test_who_watches_sees_the_denoised_estimates_and_changes_nothing():
    """Of dpm++2m the last estimate is the sample; batches say where they begin."""
    seen = []
    how = Sampling(1.0, "classifier", "dpm++2m", 6)
    made = EXACT.sample(Y, how, seed=3, watch=lambda start, x: seen.append((start, x)))
    assert torch.equal(made.x, EXACT.sample(Y, how, seed=3).x)
    assert [start for start, _ in seen] == [0] * 6 + [4] * 6
    assert torch.allclose(torch.cat([seen[5][1], seen[11][1]]), made.x, atol=1e-5)
    x, sigma = seen[0][1], EXACT.noise.karras(6)[0]
    assert (x.norm(dim=1) < 6).all(), f"already at σ = {sigma:g} the estimate lies among the data"


def test_who_watches_may_stop():
    class Enough(Exception):
        pass

    def watch(start, x):
        raise Enough

    with pytest.raises(Enough):
        EXACT.sample(Y, watch=watch)
