"""OpenTelemetry: a middleware that makes the request, the enqueue and every run of a job one trace.

It needs the extra `otel`. The names of spans and attributes are those of OpenTelemetry's conventions for messaging.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_delayq.exceptions import Snooze
from django_delayq.job.attempts import LAST_ERROR
from django_delayq.job.errors.error_text import cut_error, start_of
from django_delayq.job.errors.exception_text import message_of, path_of, traceback_of
from django_delayq.job.job import MAX_CONTEXT
from django_delayq.logs import logger
from django_delayq.middleware.base import Middleware
from django_delayq.middleware.chain import Link
from django_delayq.middleware.enqueue_batch import EnqueueBatch
from django_delayq.middleware.job import MiddlewareJob
from django_delayq.middleware.log_errors import LogErrors

try:
    from opentelemetry import context, propagate, trace
    from opentelemetry.context import Context
except ImportError as error:
    raise ImproperlyConfigured(
        "OpenTelemetryMiddleware needs the package opentelemetry-api: pip install 'django-delayq[otel]'"
    ) from error


#: Most bytes of JSON that the headers of a trace take of a job's context. It has 4 KiB for all middlewares, and a
#: stranger's request may bring 8 KiB of baggage.
_MAX_HEADERS = 1024
#: Key of a job's context: the job is one of many of a call, whose span the headers name.
_BATCH = "delayq.trace_of_batch"


class OpenTelemetryMiddleware(Middleware):
    """Record a span for each new job, and one for each attempt, in whatever process it runs.

    An exception of OpenTelemetry is logged, and changes nothing for the job.
    """

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
        if job.context.get(_BATCH) or job.schedule is not None:
            return False
        began = (job.due or job.enqueued) + (job.late or timedelta())
        return began - job.enqueued <= self.same_trace_for

    @contextmanager
    def around_enqueue(self, job: MiddlewareJob) -> Iterator[None]:
        """Record the making of the job, and put its span into the context. The jobs of a batch share one span."""
        if job.batch is not None:
            batch = job.batch
            span = batch.once(self, lambda: self._around_batch(job, batch))
            headers = _headers(job, trace.set_span_in_context(span), {_BATCH: True})
            job.context |= headers
            yield
            return
        attributes = {**_attributes(job, "create"), "messaging.message.id": job.id}
        with self._span(job, "create", attributes) as span, _current(span):
            job.context |= _headers(job)
            yield

    @contextmanager
    def around_run(self, job: MiddlewareJob) -> Iterator[None]:
        """Record the attempt. An exception is recorded and sets the status, unless it is a `Snooze`."""
        outer, links = self._origin(job)
        with self._span(job, "process", _attributes_of_run(job), outer, links) as span:
            with LogErrors("add an event"):
                if span.is_recording():
                    span.add_event("enqueued", timestamp=_nanoseconds(job.enqueued))
                    if job.due is not None:
                        span.add_event("due", timestamp=_nanoseconds(job.due))
            with _current(span, outer):
                yield

    def _origin(self, job: MiddlewareJob) -> tuple[Context, list[trace.Link]]:
        """Return the context that an attempt begins in, and its links."""
        # The project may keep a value of another type under a key that is also the name of a header.
        headers = {name: value for name, value in job.context.items() if isinstance(value, str)}
        here = outer = context.get_current()
        with LogErrors("read the headers of a job"):
            # Its baggage is that of the enqueue, and jobs that the task enqueues have it too.
            outer = propagate.extract(headers)
        continues = False
        with LogErrors("decide about the trace of a job"):
            continues = self.continues_trace(job)
        if continues:
            return outer, []
        enqueue = trace.get_current_span(outer).get_span_context()
        links = [trace.Link(enqueue)] if enqueue.is_valid else []
        # The request that set a schedule has ended long ago: a user in its baggage has nothing to do with each run.
        return trace.set_span_in_context(trace.INVALID_SPAN, outer if job.schedule is None else here), links

    @contextmanager
    def _span(
        self,
        job: MiddlewareJob,
        operation: str,
        attributes: dict[str, Any],
        outer: Context | None = None,
        links: Sequence[trace.Link] = (),
    ) -> Iterator[trace.Span]:
        """Record a span, with the exception that leaves it. It is not the current one."""
        span: trace.Span | None = None
        kind = trace.SpanKind.CONSUMER if operation == "process" else trace.SpanKind.PRODUCER
        with LogErrors("start a span"):
            span = self._tracer.start_span(
                f"{operation} {job.queue}", context=outer, kind=kind, attributes=attributes, links=links
            )
        if span is None:
            # As without a provider: what comes after belongs to the parent.
            span = trace.NonRecordingSpan(trace.get_current_span(outer).get_span_context())
        try:
            yield span
        except BaseException as error:
            _record(span, job, error)
            raise
        finally:
            with LogErrors("end a span"):
                span.end()

    @contextmanager
    def _around_batch(self, job: MiddlewareJob, batch: EnqueueBatch) -> Iterator[trace.Span]:
        """Record one call of `enqueue_many()`, with the errors of its sending."""
        # Not current: code of the project makes the arguments, and its spans are no children of this one.
        with self._span(job, "send", _attributes(job, "send")) as span:
            try:
                yield span
            finally:
                with LogErrors("set an attribute"):
                    span.set_attribute("messaging.batch.message_count", batch.count)


@contextmanager
def _current(span: trace.Span, outer: Context | None = None) -> Iterator[None]:
    """Make a span the current one."""
    token = None
    with LogErrors("make a span the current one"):
        token = context.attach(trace.set_span_in_context(span, outer))
    try:
        yield
    finally:
        if token is not None:
            context.detach(token)


def _headers(job: MiddlewareJob, of: Context | None = None, mark: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the headers of the current span, or those `of` a context, with a `mark` if there are any.

    `traceparent` comes first, then the shortest ones, as long as they fit.
    """
    injected: dict[str, Any] = {}
    with LogErrors("write the headers of a job"):
        propagate.inject(injected, context=of)
    # A propagator may write anything, and a context may be too large, or no JSON: the chain refuses it.
    headers = {name: value for name, value in injected.items() if _is_text(name) and _is_text(value)}
    if not headers:
        return {}
    room = left = min(_MAX_HEADERS, _room(job)) - (len(json.dumps(mark)) if mark else 0)
    for name, value in sorted(headers.items(), key=lambda item: (item[0] != "traceparent", len(item[1]))):
        size = len(json.dumps({name: value}))
        if size <= left:
            left -= size
        else:
            del headers[name]
            logger.debug(
                "Job %s: the header %s takes %d bytes and is left out; all headers of its trace may take %d",
                job.id,
                name,
                size,
                max(0, room),
            )
    return {**headers, **(mark or {})} if headers else {}


def _is_text(value: object) -> bool:
    # Headers are ASCII; JSON has no lone surrogates.
    return type(value) is str and value.isascii()


def _room(job: MiddlewareJob) -> int:
    """Return how many bytes of JSON the context can still take."""
    if not job.context:
        return MAX_CONTEXT
    with suppress(TypeError, ValueError, RecursionError):
        return MAX_CONTEXT - len(json.dumps(job.context))
    return _MAX_HEADERS


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


def _record(span: trace.Span, job: MiddlewareJob, error: BaseException) -> None:
    with LogErrors("record an exception"):
        if not span.is_recording():
            return
        is_run = job.attempt is not None
        if is_run and isinstance(error, Snooze):
            # No error: the task waits for something.
            span.set_attribute("delayq.snoozed", True)
            return
        path, message = path_of(error), message_of(error)
        shown = "(its message cannot be read)" if message is None else start_of(message, LAST_ERROR)
        name = path.rpartition(".")[2]
        span.set_attribute("error.type", path)
        span.set_status(trace.Status(trace.StatusCode.ERROR, f"{name}: {shown}" if shown else name))
        if is_run:
            span.set_attribute("delayq.will_retry", job.will_retry(error))
        stacktrace = cut_error(traceback_of(error), LAST_ERROR, exception=path)
        described = {"exception.message": shown, "exception.stacktrace": stacktrace}
        if message is None:
            # record_exception() calls the __str__() that failed, which may even raise SystemExit.
            span.add_event("exception", {"exception.type": path, **described})
        else:
            span.record_exception(error, described)


def _nanoseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1_000
