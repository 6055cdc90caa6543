"""Randomness as a function of (seed, name, step) and of nothing else: whatever is interrupted continues exactly."""

from __future__ import annotations

import hashlib

import torch


def random_state(seed: int, name: str, step: int) -> torch.Generator:
    """A generator for this step alone; consecutive steps never share one within a run."""
    start = int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:4])
    return torch.Generator().manual_seed((start + step) % 2**32)
