"""Every test starts from the same random state, on one thread: tests run side by side."""

from __future__ import annotations

import signal

import pytest
import torch

# A shell starts what runs in the background with SIGINT ignored, and every process of a test would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def repeatable():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        yield


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
