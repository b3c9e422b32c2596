"""Tasks that do what tasks should not. Processes know them by TASK_MODULES: `tests.sample_app.misbehaving`."""

import asyncio
import time
from typing import Any

from django_delayq import RetryPolicy, delayed_task
from tests.sample_app.misbehaving import children, deadly, errors, leftovers, loops, shared
from tests.sample_app.misbehaving.kinds import ASYNC, DEADLY, PLAIN

#: Modules that enter their kinds.
MODULES = (children, deadly, errors, leftovers, loops, shared)
__all__ = ["ASYNC", "DEADLY", "PLAIN", "innocent", "innocent_async", "misbehave", "misbehave_async"]

TWICE = RetryPolicy(max_attempts=2, base=0.01, cap=0.02)


@delayed_task(retry=TWICE, timeout=1, hard_timeout=2)
def misbehave(name: str) -> Any:
    """Be of this kind."""
    return {**PLAIN, **DEADLY}[name]()


@delayed_task(retry=TWICE, timeout=1, hard_timeout=2)
async def misbehave_async(name: str) -> Any:
    """Be of this kind, in a loop."""
    return await ASYNC[name]()


@delayed_task(retry=RetryPolicy(max_attempts=25, base=0.01, cap=0.1))
def innocent() -> None:
    """Take a moment."""
    # Long enough for neighbours to begin beside it.
    time.sleep(0.01)


@delayed_task(retry=RetryPolicy(max_attempts=25, base=0.01, cap=0.1))
async def innocent_async() -> None:
    """Take a few turns of a loop, and use a thread of it."""
    for _ in range(3):
        await asyncio.sleep(0.005)
    await asyncio.to_thread(time.sleep, 0.001)
