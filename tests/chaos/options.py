"""Chosen: what the environment asks of a chaos run: its seed, and the sizes of its long forms."""

import os
import random
from typing import TypeVar

Size = TypeVar("Size", int, float)


def drawn_seed() -> int:
    """Return DELAYQ_CHAOS_SEED, or a seed of today."""
    return int(os.environ.get("DELAYQ_CHAOS_SEED") or random.randrange(1_000_000))


def sized(name: str, default: Size) -> Size:
    """Return the size of a long form: DELAYQ_CHAOS_<name> where it is set."""
    return type(default)(os.environ.get(f"DELAYQ_CHAOS_{name}") or default)
