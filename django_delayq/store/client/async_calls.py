"""Async calls: calls of the synchronous client from event loops, in a few threads of their own.

Any number of coroutines share these threads, and so their connections. No call waits for a thread of the project, and
none of the project's code runs here.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

#: Threads, and so connections, for all event loops of a process.
THREADS = 4
P = ParamSpec("P")
T = TypeVar("T")


def _new_executor() -> ThreadPoolExecutor:
    # It starts a thread when a call needs one.
    return ThreadPoolExecutor(THREADS, thread_name_prefix="delayq-async")


_executor = _new_executor()


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Make a call that waits for Redis, while the event loop runs on. If it is cancelled, the call still ends."""
    run = partial(copy_context().run, call, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_executor, run)


def _after_fork() -> None:
    """Start again: the threads of the parent do not exist here."""
    global _executor
    _executor = _new_executor()


os.register_at_fork(after_in_child=_after_fork)
