"""At once: run functions at the same time, so that the waits for several servers do not add up."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


def at_once(functions: Sequence[Callable[[], T]]) -> list[T]:
    """Return what the functions return. One runs in this thread, each other one in a thread of its own (0.1 ms).

    The threads have this one's context variables, such as the deadline of a page.

    Raises the error of one that failed, after all have ended.
    """
    # Threads, because connecting blocks in the client library: beside a silent server the others must have their time.
    if len(functions) < 2:
        return [function() for function in functions]
    with ThreadPoolExecutor(len(functions) - 1, thread_name_prefix="delayq-read") as pool:
        others = [pool.submit(copy_context().run, function) for function in functions[1:]]
        return [functions[0](), *(other.result() for other in others)]
