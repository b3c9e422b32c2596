"""OpenTelemetry: a middleware that makes the request, the enqueue and every run of a job one trace.

It needs the extra `otel`. The names of spans and attributes are those of OpenTelemetry's conventions for messaging.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_delayq.exceptions import Snooze
from django_delayq.job.retry import class_path
from django_delayq.logs import logger
from django_delayq.middleware.base import Middleware
from django_delayq.middleware.chain import Link
from django_delayq.middleware.enqueue_batch import EnqueueBatch
from django_delayq.middleware.job import MiddlewareJob

try:
    from opentelemetry import context, propagate, trace
except ImportError as error:
    raise ImproperlyConfigured(
        "OpenTelemetryMiddleware needs the package opentelemetry-api: pip install 'django-delayq[otel]'"
    ) from error


#: Most bytes of JSON that the headers of a trace take of a job's context. It has 4 KiB for all middlewares, and a
#: stranger's request may bring 8 KiB of baggage.
MAX_HEADERS = 1024
#: Key of a job's context: the job is one of many of a call, whose span the headers name.
BATCH = "trace_of_batch"


class OpenTelemetryMiddleware(Middleware):
    """Record a span for each new job, and one for each attempt, in whatever process it runs."""

    #: An attempt that begins later than this after the enqueue has a trace of its own, with a link to the enqueue.
    same_trace_for = timedelta(hours=1)

    def __init__(self, next: Link) -> None:
        super().__init__(next)
        self._tracer = trace.get_tracer("django_delayq")

    def continues_trace(self, job: MiddlewareJob) -> bool:
        """Return whether an attempt belongs to the trace of its enqueue. If not, it has a trace of its own with a link.

        A subclass may decide otherwise. By default it does within `same_trace_for`, unless its job is one of many of
        `task.enqueue_many()` or of a recurring schedule: such a trace would have no end, or a million spans.
        """
        if job.context.get(BATCH) or job.schedule is not None:
            return False
        began = (job.due or job.enqueued) + (job.late or timedelta())
        return began - job.enqueued <= self.same_trace_for

    @contextmanager
    def around_enqueue(self, job: MiddlewareJob) -> Iterator[None]:
        """Record the making of the job, and put its span into the context. The jobs of a batch share one span."""
        if job.batch is not None:
            batch = job.batch
            span = batch.once(self, lambda: self._around_batch(job, batch))
            headers = _headers(job, trace.set_span_in_context(span))
            if headers:
                job.context |= {**headers, BATCH: True}
            yield
            return
        attributes = {**_attributes(job, "create"), "messaging.message.id": job.id}
        with self._tracer.start_as_current_span(
            f"create {job.queue}", kind=trace.SpanKind.PRODUCER, attributes=attributes
        ):
            job.context |= _headers(job)
            yield

    @contextmanager
    def around_run(self, job: MiddlewareJob) -> Iterator[None]:
        """Record the attempt. An exception is recorded and sets the status, unless it is a `Snooze`."""
        # The project may keep a value of another type under a key that is also the name of a header.
        headers = {name: value for name, value in job.context.items() if isinstance(value, str)}
        # Its baggage is that of the enqueue, and jobs that the task enqueues have it too.
        outer, links = propagate.extract(headers), []
        if not self.continues_trace(job):
            enqueue = trace.get_current_span(outer).get_span_context()
            links = [trace.Link(enqueue)] if enqueue.is_valid else []
            outer = trace.set_span_in_context(trace.INVALID_SPAN, outer)
        span = self._tracer.start_span(
            f"process {job.queue}",
            context=outer,
            kind=trace.SpanKind.CONSUMER,
            attributes=_attributes_of_run(job),
            links=links,
        )
        if span.is_recording():
            span.add_event("enqueued", timestamp=_nanoseconds(job.enqueued))
            if job.due is not None:
                span.add_event("due", timestamp=_nanoseconds(job.due))
        token = context.attach(trace.set_span_in_context(span, outer))
        try:
            yield
        except BaseException as error:
            if isinstance(error, Snooze):
                # No error: the task waits for something.
                span.set_attribute("delayq.snoozed", True)
            else:
                _record(span, error)
                span.set_attribute("delayq.will_retry", job.will_retry(error))
            raise
        finally:
            context.detach(token)
            span.end()

    @contextmanager
    def _around_batch(self, job: MiddlewareJob, batch: EnqueueBatch) -> Iterator[trace.Span]:
        """Record one call of `enqueue_many()`, with the errors of its sending."""
        # Not current: code of the project makes the arguments, and its spans are no children of this one.
        span = self._tracer.start_span(
            f"send {job.queue}", kind=trace.SpanKind.PRODUCER, attributes=_attributes(job, "send")
        )
        try:
            yield span
        except BaseException as error:
            _record(span, error)
            raise
        finally:
            span.set_attribute("messaging.batch.message_count", batch.count)
            span.end()


def _headers(job: MiddlewareJob, of: Any = None) -> dict[str, str]:
    """Return the headers of the current span, or those `of` a context: `traceparent`, then the shortest ones."""
    headers: dict[str, str] = {}
    propagate.inject(headers, context=of)
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
        "delayq.task": job.task,
    }


def _attributes_of_run(job: MiddlewareJob) -> dict[str, Any]:
    attributes = {
        **_attributes(job, "process"),
        "messaging.message.id": job.id,
        "delayq.attempt": job.attempt or 0,
    }
    if job.late is not None:
        attributes["delayq.late"] = job.late.total_seconds()
    if job.schedule is not None:
        attributes["delayq.schedule"] = job.schedule
        if job.occurrence is not None:
            attributes["delayq.occurrence"] = job.occurrence.isoformat()
    return attributes


def _record(span: trace.Span, error: BaseException) -> None:
    # The __str__() of the exception, or its metaclass, is code of the project, which must not replace the error.
    with suppress(Exception):
        span.record_exception(error)
        span.set_status(trace.Status(trace.StatusCode.ERROR, f"{type(error).__name__}: {error}"))
        span.set_attribute("error.type", class_path(type(error)))


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1_000
