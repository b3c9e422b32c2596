"""Tasks that do what tasks should not. Processes know them by TASK_MODULES: `tests.sample_app.misbehaving`."""

import asyncio
import time
from typing import Any

from django_delayq import RetryPolicy, delayed_task
from tests.sample_app.misbehaving import children, deadly, errors, leftovers, loops, shared
from tests.sample_app.misbehaving.kinds import ASYNC, CRIPPLING, DEADLY, PLAIN

#: Modules that register their kinds.
MODULES = (children, deadly, errors, leftovers, loops, shared)
__all__ = ["ASYNC", "CRIPPLING", "DEADLY", "PLAIN", "innocent", "innocent_async", "misbehave", "misbehave_async"]

TWICE = RetryPolicy(max_attempts=2, base=0.01, cap=0.02)


@delayed_task(retry=TWICE, timeout=1, hard_timeout=2)
def misbehave(name: str) -> Any:
    """Run the function of this kind."""
    return {**PLAIN, **DEADLY}[name]()


@delayed_task(retry=TWICE, timeout=1, hard_timeout=2)
async def misbehave_async(name: str) -> Any:
    """Run the coroutine function of this kind."""
    return await ASYNC[name]()


@delayed_task(retry=RetryPolicy(max_attempts=25, base=0.01, cap=0.1))
def innocent() -> None:
    """Run for a moment."""
    # Long enough for other jobs to begin meanwhile.
    time.sleep(0.01)


@delayed_task(retry=RetryPolicy(max_attempts=25, base=0.01, cap=0.1))
async def innocent_async() -> None:
    """Run for a few turns of the loop, and use one of its threads."""
    for _ in range(3):
        await asyncio.sleep(0.005)
    await asyncio.to_thread(time.sleep, 0.001)
