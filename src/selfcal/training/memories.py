"""What terms remember, of every process that trains: Langevin chains are each process's own.

In a checkpoint the memories of the first process are called as ever, "jem/3"; those of the others begin with their
number, "process-1/jem/3". On as many processes as before each goes on with its own, to the bit; a process more than
there were takes a copy of another's, and those of processes that are not there any more are left behind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from selfcal.core.team import Team
from selfcal.methods.reading import Remembers

OTHERS = re.compile(r"process-([0-9]{1,6})/(.*)", re.DOTALL)


def packed(memories: Mapping[str, Remembers], team: Team) -> dict[str, Tensor]:
    """Of all processes, in each of them; every process must ask."""
    if not memories:
        return {}
    own = {f"{name}/{key}": v.detach().cpu() for name, memory in memories.items() for key, v in memory.state().items()}
    every = team.merged({team.rank: own})
    return {(f"process-{rank}/{key}" if rank else key): v for rank, kept in every.items() for key, v in kept.items()}


def unpack(saved: Mapping[str, Tensor], memories: Mapping[str, Remembers], team: Team) -> None:
    """Into the memories of this process."""
    by_process: dict[int, dict[str, Tensor]] = {0: {}}
    for key, value in saved.items():
        match = OTHERS.fullmatch(key)
        rank, name = (int(match[1]), match[2]) if match else (0, key)
        by_process.setdefault(rank, {})[name] = value
    mine = by_process[sorted(by_process)[team.rank % len(by_process)]]
    for name, memory in memories.items():
        prefix = f"{name}/"
        memory.restore({k.removeprefix(prefix): v for k, v in mine.items() if k.startswith(prefix)})
