"""OpenTelemetry: a middleware that makes the request, the enqueue and every run of a job one trace.

It needs the extra `otel`. The names of spans and attributes are those of OpenTelemetry's conventions for messaging.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_delayq.middleware.chain import Link, MiddlewareJob

try:
    from opentelemetry import propagate, trace
except ImportError as error:
    raise ImproperlyConfigured(
        "OpenTelemetryMiddleware needs the package opentelemetry-api: pip install 'django-delayq[otel]'"
    ) from error


class OpenTelemetryMiddleware:
    """Record a span for each new job, and for each attempt one that is its child, in whatever process it runs."""

    def __init__(self, next: Link) -> None:
        self.next = next
        self._tracer = trace.get_tracer("django_delayq")

    def enqueue(self, job: MiddlewareJob) -> Any:
        """Record the making of the job, and put its span into the context."""
        with self._created(job):
            return self.next.enqueue(job)

    async def aenqueue(self, job: MiddlewareJob) -> Any:
        """Do what `enqueue()` does, from async code."""
        with self._created(job):
            return await self.next.aenqueue(job)

    def run(self, job: MiddlewareJob) -> Any:
        """Record the attempt as a child of that span. An exception is recorded and sets the status."""
        with self._attempted(job):
            return self.next.run(job)

    async def arun(self, job: MiddlewareJob) -> Any:
        """Do what `run()` does in an event loop."""
        with self._attempted(job):
            return await self.next.arun(job)

    @contextmanager
    def _created(self, job: MiddlewareJob) -> Iterator[None]:
        attributes = _attributes(job, "create")
        with self._tracer.start_as_current_span(
            f"create {job.queue}", kind=trace.SpanKind.PRODUCER, attributes=attributes
        ):
            propagate.inject(job.context)
            yield

    @contextmanager
    def _attempted(self, job: MiddlewareJob) -> Iterator[None]:
        attributes = {**_attributes(job, "process"), "delayq.attempt": job.attempt or 0}
        with self._tracer.start_as_current_span(
            f"process {job.queue}",
            context=propagate.extract(job.context),
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes,
        ):
            yield


def _attributes(job: MiddlewareJob, operation: str) -> dict[str, Any]:
    return {
        "messaging.system": "delayq",
        "messaging.operation.type": operation,
        "messaging.operation.name": operation,
        "messaging.destination.name": job.queue,
        "messaging.message.id": job.id,
        "delayq.task": job.task,
    }
