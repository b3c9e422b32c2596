"""Base: a middleware whose work is what happens before and after an enqueue or a run, in plain and in async code."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from django_delayq.middleware.chain import Link
from django_delayq.middleware.job import MiddlewareJob

_METHODS = ("enqueue", "aenqueue", "run", "arun")


class Middleware:
    """A base class: override `around_enqueue()`, `around_run()` or both, as context managers.

    Both are called in plain code and in event loops, so they must not block, nor query a database.
    """

    def __init__(self, next: Link) -> None:
        self.next = next

    def __init_subclass__(cls) -> None:
        # A subclass that overrides only one form would behave differently in async code.
        for name in _METHODS:
            if name in vars(cls):
                around = f"around_{name.removeprefix('a')}"
                raise TypeError(f"{cls.__name__} defines {name}; define {around}, or a class without this base")

    def around_enqueue(self, job: MiddlewareJob) -> AbstractContextManager[Any]:
        """Return what surrounds the enqueue of a job."""
        return nullcontext()

    def around_run(self, job: MiddlewareJob) -> AbstractContextManager[Any]:
        """Return what surrounds an attempt."""
        return nullcontext()

    def enqueue(self, job: MiddlewareJob) -> Any:
        """Pass a new job on; returns its handle."""
        with self.around_enqueue(job):
            return self.next.enqueue(job)

    async def aenqueue(self, job: MiddlewareJob) -> Any:
        """Do what `enqueue()` does, from async code."""
        with self.around_enqueue(job):
            return await self.next.aenqueue(job)

    def run(self, job: MiddlewareJob) -> Any:
        """Pass an attempt on; returns the value of the task."""
        with self.around_run(job):
            return self.next.run(job)

    async def arun(self, job: MiddlewareJob) -> Any:
        """Do what `run()` does in an event loop."""
        with self.around_run(job):
            return await self.next.arun(job)
