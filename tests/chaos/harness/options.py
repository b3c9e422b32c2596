"""Options: environment variables of the chaos tests, which are the seed and the sizes of the long forms."""

import os
import random
from typing import TypeVar

Size = TypeVar("Size", int, float)


def drawn_seed() -> int:
    """Return DELAYQ_CHAOS_SEED, or a random seed if it is not set."""
    return int(os.environ.get("DELAYQ_CHAOS_SEED") or random.randrange(1_000_000))


def sized(name: str, default: Size) -> Size:
    """Return the size of a long form: DELAYQ_CHAOS_<name>, or the default if it is not set."""
    return type(default)(os.environ.get(f"DELAYQ_CHAOS_{name}") or default)
