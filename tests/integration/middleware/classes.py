"""Middlewares that the tests list, and what they saw."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from django.core.exceptions import MiddlewareNotUsed

from django_delayq.middleware import Middleware
from tests.sample_app.tasks import note

#: What the middlewares of this process did, in order; tests clear it.
seen: list[Any] = []
request_id: ContextVar[str] = ContextVar("request_id", default="none")


class Outer:
    """Records each call, in the plain form only."""

    def __init__(self, next: Any) -> None:
        self.next = next
        seen.append("Outer made")

    def enqueue(self, job: Any) -> Any:
        seen.append("Outer enqueue")
        handle = self.next.enqueue(job)
        seen.append("Outer enqueued")
        return handle

    def run(self, job: Any) -> Any:
        seen.append("Outer run")
        try:
            return self.next.run(job)
        finally:
            seen.append("Outer ran")


class Inner(Outer):
    """Records each call with the form that was called."""

    def __init__(self, next: Any) -> None:
        self.next = next

    def enqueue(self, job: Any) -> Any:
        seen.append("Inner enqueue")
        return self.next.enqueue(job)

    async def aenqueue(self, job: Any) -> Any:
        seen.append("Inner aenqueue")
        return await self.next.aenqueue(job)

    def run(self, job: Any) -> Any:
        seen.append("Inner run")
        return self.next.run(job)

    async def arun(self, job: Any) -> Any:
        seen.append("Inner arun")
        return await self.next.arun(job)


class RequestId:
    """Carries a context variable over, and notes in the ledger what a run sees."""

    def __init__(self, next: Any) -> None:
        self.next = next

    def enqueue(self, job: Any) -> Any:
        job.context["request_id"] = request_id.get()
        return self.next.enqueue(job)

    def run(self, job: Any) -> Any:
        request_id.set(job.context["request_id"])
        return self.next.run(job)


class AsyncRequestId(RequestId):
    """The same in the async form alone."""

    run = None  # type: ignore[assignment]

    async def arun(self, job: Any) -> Any:
        request_id.set(job.context["request_id"])
        return await self.next.arun(job)


class Noting(RequestId):
    """Notes in the ledger of the processes which job ran, in which attempt, and how the call of the task ended."""

    def run(self, job: Any) -> Any:
        try:
            result = super().run(job)
        except ValueError as error:
            note("middleware", id=job.id, attempt=job.attempt, request_id=request_id.get(), error=str(error))
            raise
        note("middleware", id=job.id, attempt=job.attempt, request_id=request_id.get(), error=None)
        return result


class Around(Middleware):
    """Records what surrounds each call; one pair of methods serves plain and async code."""

    @contextmanager
    def around_enqueue(self, job: Any) -> Iterator[None]:
        job.context["request_id"] = request_id.get()
        seen.append("Around enqueue")
        yield
        seen.append("Around enqueued")

    @contextmanager
    def around_run(self, job: Any) -> Iterator[None]:
        request_id.set(job.context.get("request_id", "none"))
        seen.append("Around run")
        try:
            yield
        finally:
            seen.append("Around ran")


class AroundNothing(Middleware):
    """Overrides nothing."""


class Filling:
    """Puts `value` into the context, if there is one."""

    value: Any = None

    def __init__(self, next: Any) -> None:
        self.next = next

    def enqueue(self, job: Any) -> Any:
        job.context["filled"] = self.value
        return self.next.enqueue(job)


class Refusing:
    """Raises, at the enqueue or at the run, what the test sets."""

    at_enqueue: BaseException | None = None
    at_run: BaseException | None = None

    def __init__(self, next: Any) -> None:
        self.next = next

    def enqueue(self, job: Any) -> Any:
        if self.at_enqueue:
            raise self.at_enqueue
        return self.next.enqueue(job)

    def run(self, job: Any) -> Any:
        if self.at_run:
            raise self.at_run
        return self.next.run(job)


class Calling:
    """Calls the function that the test sets, with `next` and the job."""

    enqueue_by: Any = None
    run_by: Any = None

    def __init__(self, next: Any) -> None:
        self.next = next

    def enqueue(self, job: Any) -> Any:
        return type(self).enqueue_by(self.next, job)

    def run(self, job: Any) -> Any:
        return type(self).run_by(self.next, job) if type(self).run_by else self.next.run(job)


class NotUsed:
    """Declines to be used."""

    def __init__(self, next: Any) -> None:
        raise MiddlewareNotUsed

    def run(self, job: Any) -> Any: ...


class NoNext:
    """Has no __init__ that takes `next`."""

    def run(self, job: Any) -> Any: ...


class Failing:
    """Cannot be built."""

    def __init__(self, next: Any) -> None:
        raise LookupError("no tenants")

    def run(self, job: Any) -> Any: ...


class Shapeless:
    """Has none of the methods."""

    def __init__(self, next: Any) -> None: ...


class Misnamed:
    """Has an async method under the name of the plain one."""

    async def run(self, job: Any) -> Any: ...


class PlainArun:
    """Has a plain method under the name of the async one."""

    def arun(self, job: Any) -> Any: ...


def function(next: Any) -> Any:
    """Is no class."""


class AsyncEnqueue:
    """Has the async form alone."""

    def __init__(self, next: Any) -> None:
        self.next = next

    async def aenqueue(self, job: Any) -> Any:
        seen.append("AsyncEnqueue")
        return await self.next.aenqueue(job)
