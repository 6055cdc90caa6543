"""Who does what among processes that share work; the rest is tested under torchrun, in tests/cli/test_together.py."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from selfcal.core.errors import SelfcalError
from selfcal.core.team import ALONE, Team, partners


def teams(world):
    return [Team(SimpleNamespace(process_index=rank, num_processes=world)) for rank in range(world)]


@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_every_job_is_done_once_and_none_has_much_more_than_the_others(world):
    weights = [10.0, 1.0, 1.0, 4.0, 4.0, 2.0, 2.0, 2.0, 2.0, 2.0]
    shares = [team.mine(weights) for team in teams(world)]
    assert sorted(job for share in shares for job in share) == list(range(len(weights)))
    loads = [sum(weights[job] for job in share) for share in shares]
    assert max(loads) <= max(sum(weights) / world, max(weights)) + 2


def test_alone_everything_is_as_it_is():
    assert (ALONE.rank, ALONE.world, ALONE.is_main) == (0, 1, True)
    assert ALONE.each([lambda: "a", lambda: "b"]) == ["a", "b"]
    assert ALONE.from_main(lambda: 3) == ALONE.main_first(lambda: 3) == 3
    rows = torch.rand(3, 2)
    assert ALONE.gathered(rows, [3])[0] is rows


def test_a_process_that_is_gone_is_one_sentence():
    with pytest.raises(SelfcalError, match="another process of this run is gone \\(Connection closed"), partners():
        raise RuntimeError("Connection closed by peer\nstack")
