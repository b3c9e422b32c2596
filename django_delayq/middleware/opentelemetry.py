"""OpenTelemetry: a middleware that makes the request, the enqueue and every run of a job one trace.

It needs the extra `otel`. The names of spans and attributes are those of OpenTelemetry's conventions for messaging.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_delayq.logs import logger
from django_delayq.middleware.base import Middleware
from django_delayq.middleware.chain import Link, MiddlewareJob

try:
    from opentelemetry import propagate, trace
except ImportError as error:
    raise ImproperlyConfigured(
        "OpenTelemetryMiddleware needs the package opentelemetry-api: pip install 'django-delayq[otel]'"
    ) from error


#: Most bytes of JSON that the headers of a trace take of a job's context. It has 4 KiB for all middlewares, and a
#: stranger's request may bring 8 KiB of baggage.
MAX_HEADERS = 1024


class OpenTelemetryMiddleware(Middleware):
    """Record a span for each new job, and for each attempt one that is its child, in whatever process it runs."""

    def __init__(self, next: Link) -> None:
        super().__init__(next)
        self._tracer = trace.get_tracer("django_delayq")

    @contextmanager
    def around_enqueue(self, job: MiddlewareJob) -> Iterator[None]:
        """Record the making of the job, and put its span into the context."""
        attributes = _attributes(job, "create")
        with self._tracer.start_as_current_span(
            f"create {job.queue}", kind=trace.SpanKind.PRODUCER, attributes=attributes
        ):
            job.context |= _headers(job)
            yield

    @contextmanager
    def around_run(self, job: MiddlewareJob) -> Iterator[None]:
        """Record the attempt as a child of that span. An exception is recorded and sets the status."""
        attributes = {**_attributes(job, "process"), "delayq.attempt": job.attempt or 0}
        # The project may keep a value of another type under a key that is also the name of a header.
        headers = {name: value for name, value in job.context.items() if isinstance(value, str)}
        with self._tracer.start_as_current_span(
            f"process {job.queue}",
            context=propagate.extract(headers),
            kind=trace.SpanKind.CONSUMER,
            attributes=attributes,
        ):
            yield


def _headers(job: MiddlewareJob) -> dict[str, str]:
    """Return the headers of the current span: `traceparent`, then the shortest ones, up to MAX_HEADERS."""
    headers: dict[str, str] = {}
    propagate.inject(headers)
    left = MAX_HEADERS
    for name, value in sorted(headers.items(), key=lambda item: (item[0] != "traceparent", len(item[1]))):
        size = len(json.dumps({name: value}))
        if size <= left:
            left -= size
        else:
            del headers[name]
            logger.debug(
                "Job %s: the header %s takes %d bytes and is left out; all headers of a trace may take %d",
                job.id,
                name,
                size,
                MAX_HEADERS,
            )
    return headers


def _attributes(job: MiddlewareJob, operation: str) -> dict[str, Any]:
    return {
        "messaging.system": "delayq",
        "messaging.operation.type": operation,
        "messaging.operation.name": operation,
        "messaging.destination.name": job.queue,
        "messaging.message.id": job.id,
        "delayq.task": job.task,
    }
