"""Job thread: call plain code from an event loop in the thread of the job, or of the caller's transactions."""

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import sync_to_async


def in_job_thread(func: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return the async form of a plain function; its StopIteration leaves as RuntimeError, as from a generator."""

    def call(*args: Any) -> Any:
        try:
            return func(*args)
        except StopIteration as error:
            # asyncio refuses a StopIteration as the result of a future, so the caller would never get an answer.
            raise RuntimeError("plain code that was called from an event loop raised StopIteration") from error

    return sync_to_async(call, thread_sensitive=True)
