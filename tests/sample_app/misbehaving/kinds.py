"""Kinds of misbehaviour: each is a function registered under its name.

An endless function ends after a few seconds here, because a thread cannot be ended and each holds a slot.
"""

import asyncio
from collections.abc import Callable
from typing import Any

#: Seconds that count as forever.
LONG = 4.0
Kind = Callable[[], Any]

#: Name -> function: kinds for any pool; for a loop; that end or cripple the process they run in.
PLAIN: dict[str, Kind] = {}
ASYNC: dict[str, Kind] = {}
DEADLY: dict[str, Kind] = {}
#: Those of DEADLY that leave a living process in which later code may fail, or wait for a lock forever.
CRIPPLING = frozenset({"forbid_descriptors", "forbid_recursion", "left_timer"})


def kind(kinds: dict[str, Kind]) -> Callable[[Kind], Kind]:
    """Register a function as a kind."""

    def enter(func: Kind) -> Kind:
        kinds[func.__name__] = func
        return func

    return enter


def raising(make: Callable[[], BaseException]) -> Kind:
    def func() -> None:
        raise make()

    return func


def raising_async(make: Callable[[], BaseException]) -> Kind:
    async def func() -> None:
        await asyncio.sleep(0)
        raise make()

    return func
