"""Which images to label next: the formula against trying all, and what it must not do."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

from oracle import three_classes
from selfcal.core.errors import SelfcalError
from selfcal.diffusion.generator import Generator, Sampling
from selfcal.diffusion.noise import Noise
from selfcal.diffusion.scores import UNLABELED
from selfcal.evaluation.opinion import opinions
from selfcal.evaluation.suggestion import doubt, most_telling, suggest

MIXTURE = three_classes()


def unexplained(features, unsure, chosen):
    """R(S) of the docstring, written down again."""
    return sum(u * min((f - features[j]).square().sum() for j in chosen) for u, f in zip(unsure, features, strict=True))


def guide():
    networks = {"score": MIXTURE.score, "classifier": MIXTURE.log_joint}
    return Generator(networks, Noise(0.05, 10.0), (2,), ("a", "b", "c"), Sampling(1.0, "classifier", "heun", 6))


def test_each_choice_lowers_the_rest_most_and_all_of_them_nearly_as_much_as_the_best_could():
    rng = torch.Generator().manual_seed(1)
    features, unsure = torch.randn(14, 3, generator=rng), torch.rand(14, generator=rng)
    labelled = torch.zeros(14, dtype=torch.bool)
    labelled[[2, 5]] = True
    picked = most_telling(features, unsure, labelled, 3).tolist()
    chosen = [2, 5]
    for choice in picked:
        left = {i: unexplained(features, unsure, [*chosen, i]) for i in range(14) if i not in chosen}
        assert choice == min(left, key=left.get)
        chosen.append(choice)
    start = unexplained(features, unsure, [2, 5])
    others = [i for i in range(14) if i not in (2, 5)]
    best = min(unexplained(features, unsure, [2, 5, *three]) for three in combinations(others, 3))
    assert start - unexplained(features, unsure, chosen) >= (1 - 1 / torch.e) * (start - best)


def test_doubts_diversity_and_what_is_known():
    """Three heaps: one is labelled, of one the guide is sure; then one choice from the third, and none twice."""
    heaps = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]]).repeat_interleave(5, 0)
    features = heaps + 0.1 * torch.randn(15, 2, generator=torch.Generator().manual_seed(0))
    unsure = torch.tensor([0.5] * 5 + [0.1] * 5 + [0.5] * 5)
    labelled = torch.zeros(15, dtype=torch.bool)
    labelled[0] = True
    first, second, *rest = most_telling(features, unsure, labelled, 40).tolist()
    assert first in range(10, 15)
    assert second in range(5, 10)
    assert sorted([first, second, *rest]) == list(range(1, 15)), "all that are unlabelled, each once, and no more"


def test_doubt_is_nothing_where_the_guide_is_sure_and_one_where_it_knows_nothing():
    assert doubt(torch.tensor([[1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0.0]])).tolist() == pytest.approx(
        [0.0, 1.0, 0.6309297535714575]
    )


def test_opinions_are_averages_over_noise():
    x = MIXTURE.centres[:1].float()
    found = opinions(guide(), x, [0.1, 3.0], draws=400)
    z = torch.randn(20_000, 2, generator=torch.Generator().manual_seed(9))
    for row, sigma in zip(found, (0.1, 3.0), strict=True):
        exact = MIXTURE.log_joint(x + sigma * z, torch.full((len(z),), sigma)).softmax(-1).mean(0)
        assert torch.allclose(row[0], exact.double(), atol=0.06)
        assert float(row.sum()) == pytest.approx(1, abs=1e-5)


def test_suggestions_are_unlabelled_differ_and_repeat():
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(3)) * 2
    labels = torch.full((60,), UNLABELED)
    labels[:3] = torch.tensor([0, 1, 2])
    picked = suggest(guide(), x, labels, 10)
    assert len(set(picked.tolist())) == 10
    assert (labels[picked] == UNLABELED).all()
    assert torch.equal(picked, suggest(guide(), x, labels, 10))


def test_nothing_to_suggest_is_said():
    x = torch.zeros(3, 2)
    with pytest.raises(SelfcalError, match="every image has a label already"):
        suggest(guide(), x, torch.tensor([0, 1, 2]), 5)
    with pytest.raises(SelfcalError, match="--count 0"):
        suggest(guide(), x, torch.full((3,), UNLABELED), 0)
