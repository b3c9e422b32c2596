"""Traces of OpenTelemetry: a request, its jobs, their retries and their own jobs; and what has a trace of its own."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, TraceFlags

from django_delayq import Snooze, enqueue_many
from django_delayq.exceptions import PayloadNotSerializable
from django_delayq.job.attempts import LAST_ERROR
from django_delayq.middleware.opentelemetry import OpenTelemetryMiddleware
from django_delayq.task import registry
from django_delayq.testing import DelayQ
from tests.integration.middleware import classes
from tests.integration.middleware.traces import PATH, task_of
from tests.stepped_worker import stepped_worker
from tests.subprocesses import until

TRACER = trace.get_tracer("shop")


class Patient(OpenTelemetryMiddleware):
    """Keeps each job in the trace of its enqueue, however late it runs."""

    def continues_trace(self, job: Any) -> bool:
        return True


def buy(request: HttpRequest) -> HttpResponse:
    """A view that enqueues, inside the span that an instrumentation of Django opens for each request."""
    with TRACER.start_as_current_span("POST /buy/", kind=SpanKind.SERVER):
        job = registry.get("shop.tasks.play").after(0.01).enqueue()
    return HttpResponse(job.id)


urlpatterns = [path("buy/", buy)]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return the attributes of a span."""
    return dict(span.attributes or {})


def parent(span: ReadableSpan) -> int | None:
    """Return the id of the parent of a span."""
    return span.parent.span_id if span.parent else None


@pytest.fixture
def named(spans: InMemorySpanExporter) -> Iterator[Any]:
    """Return the spans of a name, in the order of their starts."""

    def find(name: str) -> list[ReadableSpan]:
        found = sorted(spans.get_finished_spans(), key=lambda span: span.start_time or 0)
        return [span for span in found if span.name == name]

    return find  # type: ignore[return-value]


def test_a_request_its_job_a_retry_and_the_job_of_the_job_are_one_trace(
    spans: InMemorySpanExporter, named: Any, settings: Any
) -> None:
    settings.ROOT_URLCONF = __name__
    thanked = task_of(lambda: None, "shop.tasks.thank")

    def play() -> None:
        if len(named("process mail")) == 0:
            raise ConnectionError("the bank does not answer")
        thanked.using(queue="thanks").enqueue()

    task_of(play)
    Client().post("/buy/")
    with stepped_worker() as worker:
        until(lambda: worker.step() is not None and named("process thanks"), what="both jobs to end")

    [request], [made], [first, second] = named("POST /buy/"), named("create mail"), named("process mail")
    [made_by_job], [last] = named("create thanks"), named("process thanks")
    assert {span.context.trace_id for span in spans.get_finished_spans()} == {request.context.trace_id}
    assert [parent(span) for span in (request, made, first, second, made_by_job, last)] == [
        *(None, request.context.span_id, made.context.span_id, made.context.span_id),
        *(second.context.span_id, made_by_job.context.span_id),
    ]
    assert {span.kind for span in (made, made_by_job)} == {SpanKind.PRODUCER}
    assert {span.kind for span in (first, second, last)} == {SpanKind.CONSUMER}

    failed, succeeded = attributes(first), attributes(second)
    assert failed.pop("delayq.late") >= 0 and succeeded.pop("delayq.late") >= 0
    messaging = {
        "messaging.system": "delayq",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": attributes(made)["messaging.message.id"],
        "delayq.task": "shop.tasks.play",
    }
    error = {"error.type": "builtins.ConnectionError", "delayq.will_retry": True}
    assert failed == {**messaging, "delayq.attempt": 1, **error}
    assert succeeded == {**messaging, "delayq.attempt": 2}
    assert (first.status.status_code, second.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert first.status.description == "ConnectionError: the bank does not answer"

    # The wait is the time between two events, which may be before the span itself.
    enqueued, due, exception = first.events
    assert (enqueued.name, due.name, exception.name) == ("enqueued", "due", "exception")
    assert enqueued.timestamp <= due.timestamp <= (first.start_time or 0)
    assert [event.name for event in second.events] == ["enqueued", "due"]
    assert second.events[1].timestamp >= (first.end_time or 0) - 1_000_000


def test_a_call_of_enqueue_many_is_one_span_and_each_run_has_a_trace_with_a_link_to_it(
    spans: InMemorySpanExporter, named: Any, delayq: DelayQ
) -> None:
    task = task_of(lambda number: None)
    with TRACER.start_as_current_span("request") as request:
        task.enqueue_many((number,) for number in range(3))
    delayq.drain()
    [sent], runs = named("send mail"), named("process mail")
    assert len(spans.get_finished_spans()) == 5
    assert (sent.kind, parent(sent)) == (SpanKind.PRODUCER, request.get_span_context().span_id)
    assert attributes(sent) == {
        "messaging.system": "delayq",
        "messaging.operation.type": "send",
        "messaging.operation.name": "send",
        "messaging.destination.name": "mail",
        "messaging.batch.message_count": 3,
        "delayq.task": "shop.tasks.play",
    }
    assert [[link.context.span_id for link in run.links] for run in runs] == [[sent.context.span_id]] * 3
    assert [parent(run) for run in runs] == [None] * 3
    assert len({run.context.trace_id for run in (sent, *runs)}) == 4


def test_the_span_of_enqueue_many_has_the_error_of_the_call(
    spans: InMemorySpanExporter, named: Any, delayq: DelayQ
) -> None:
    task = task_of(lambda number: None)
    with pytest.raises(PayloadNotSerializable):
        task.enqueue_many([(1,), ({2},)])
    [sent] = named("send mail")
    assert sent.status.status_code is StatusCode.ERROR
    assert attributes(sent)["error.type"] == "django_delayq.exceptions.PayloadNotSerializable"
    assert attributes(sent)["messaging.batch.message_count"] == 1


def test_a_call_of_aenqueue_many_is_one_span(spans: InMemorySpanExporter, named: Any, delayq: DelayQ) -> None:
    asyncio.run(task_of(lambda number: None).aenqueue_many([(1,), (2,)]))
    [sent] = named("send mail")
    assert attributes(sent)["messaging.batch.message_count"] == 2


def test_jobs_that_were_made_before_the_call_have_spans_of_their_own(
    spans: InMemorySpanExporter, named: Any, delayq: DelayQ
) -> None:
    task = task_of(lambda: None)
    enqueue_many([task.job(), task.after(60).job()])
    assert len(named("create mail")) == 2 and not named("send mail")


@pytest.mark.parametrize(("hours", "is_same"), [(0.9, True), (1.1, False)])
def test_a_job_of_more_than_an_hour_later_has_a_trace_of_its_own_with_a_link(
    spans: InMemorySpanExporter, named: Any, delayq: DelayQ, hours: float, is_same: bool
) -> None:
    task_of(lambda: None).after(hours=hours).enqueue()
    delayq.advance(hours=hours, run=True)
    [made], [run] = named("create mail"), named("process mail")
    assert (run.context.trace_id == made.context.trace_id) is is_same
    linked = [link.context.span_id for link in run.links]
    assert (parent(run), linked) == ((made.context.span_id, []) if is_same else (None, [made.context.span_id]))


def test_a_subclass_keeps_a_late_job_in_the_trace_of_its_enqueue(
    spans: InMemorySpanExporter, named: Any, delayq: DelayQ, settings: Any
) -> None:
    settings.DELAYQ = {**settings.DELAYQ, "MIDDLEWARE": [f"{__name__}.Patient"]}
    task_of(lambda: None).after(days=3).enqueue()
    delayq.advance(days=3, run=True)
    [made], [run] = named("create mail"), named("process mail")
    assert parent(run) == made.context.span_id


def test_each_job_of_a_schedule_has_a_trace_of_its_own_with_a_link_to_what_set_the_schedule(
    spans: InMemorySpanExporter, named: Any, delayq: DelayQ
) -> None:
    task_of(lambda: None).schedules.set("often", cron="*/10 * * * *", tz="UTC")
    ran = delayq.advance(minutes=25, run=True)
    assert len(ran) >= 2
    [made], runs = named("create mail"), named("process mail")
    assert len({span.context.trace_id for span in (made, *runs)}) == 1 + len(ran)
    assert [[link.context.span_id for link in run.links] for run in runs] == [[made.context.span_id]] * len(ran)
    assert {attributes(run)["delayq.schedule"] for run in runs} == {"often"}
    assert [attributes(run)["delayq.occurrence"] for run in runs] == [
        each.occurrence.isoformat() for each in ran if each.occurrence
    ]


def test_a_snooze_is_no_error(spans: InMemorySpanExporter, named: Any, delayq: DelayQ) -> None:
    def play() -> None:
        if len(named("process mail")) == 0:
            raise Snooze(minutes=1)

    task_of(play).enqueue()
    delayq.drain()
    first, second = named("process mail")
    assert first.status.status_code is StatusCode.UNSET and attributes(first)["delayq.snoozed"] is True
    assert [event.name for event in first.events] == ["enqueued", "due"]
    assert second.events[1].timestamp - first.events[1].timestamp == pytest.approx(60e9, abs=1e9)


def test_the_baggage_of_the_request_is_there_in_the_task_and_in_its_own_jobs(
    spans: InMemorySpanExporter, delayq: DelayQ
) -> None:
    found: list[object] = []
    inner = task_of(lambda: found.append(baggage.get_baggage("user")), "shop.tasks.inner")

    def play() -> None:
        found.append(baggage.get_baggage("user"))
        inner.enqueue()

    token = context.attach(baggage.set_baggage("user", "ann"))
    try:
        task_of(play).enqueue()
    finally:
        context.detach(token)
    delayq.drain()
    assert found == ["ann", "ann"]
    assert baggage.get_baggage("user") is None


def test_the_jobs_of_a_request_that_is_not_sampled_leave_no_spans_and_tell_their_own_jobs(
    spans: InMemorySpanExporter, delayq: DelayQ
) -> None:
    # The default sampler follows the parent.
    caller = SpanContext(int("a" * 32, 16), int("b" * 16, 16), True, TraceFlags(TraceFlags.DEFAULT))
    seen: list[SpanContext] = []
    task = task_of(lambda: seen.append(trace.get_current_span().get_span_context()))
    with trace.use_span(trace.NonRecordingSpan(caller)):
        task.enqueue()
    delayq.drain()
    assert spans.get_finished_spans() == ()
    assert [(each.trace_id, each.trace_flags) for each in seen] == [(caller.trace_id, TraceFlags.DEFAULT)]


@pytest.mark.parametrize("raised", [RuntimeError, SystemExit])
def test_an_error_whose_text_cannot_be_read_is_still_the_error_of_the_attempt(
    spans: InMemorySpanExporter, named: Any, delayq: DelayQ, raised: type[BaseException]
) -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise raised("no text")

    def play() -> None:
        raise Broken

    task_of(play).enqueue()
    ran = delayq.run_due(errors="retry")
    assert [run.ending for run in ran] == ["failed"]
    assert "Broken" in ran[0].error.splitlines()[-1]
    [span] = named("process mail")
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "Broken: (its message cannot be read)"
    assert [event.name for event in span.events] == ["enqueued", "due", "exception"]
    assert attributes(span)["error.type"].endswith("Broken") and attributes(span)["delayq.will_retry"] is True


@pytest.mark.parametrize("where", ["create", "process"])
def test_a_long_message_is_cut_as_in_the_stored_error(
    spans: InMemorySpanExporter, named: Any, delayq: DelayQ, settings: Any, where: str
) -> None:
    def play() -> None:
        raise ValueError("beginning" + "x" * 2_000_000)

    if where == "create":
        classes.Refusing.at_enqueue = ValueError("beginning" + "x" * 2_000_000)
        settings.DELAYQ = {**settings.DELAYQ, "MIDDLEWARE": [PATH, f"{classes.__name__}.Refusing"]}
        with pytest.raises(ValueError, match="beginning"):
            task_of(play).enqueue()
        classes.Refusing.at_enqueue = None
    else:
        task_of(play).enqueue()
        delayq.run_due(errors="retry")
    [span] = named(f"{where} mail")
    [exception] = [event for event in span.events if event.name == "exception"]
    described = exception.attributes or {}
    assert (span.status.description or "").startswith("ValueError: beginning")
    assert str(described["exception.message"]).startswith("beginning")
    assert "ValueError: beginning" in str(described["exception.stacktrace"])
    assert len(span.status.description or "") <= LAST_ERROR + len("ValueError: ")
    assert max(len(str(value)) for value in described.values()) <= LAST_ERROR


def test_the_jobs_of_a_schedule_do_not_have_the_baggage_of_the_request_that_set_it(
    spans: InMemorySpanExporter, named: Any, delayq: DelayQ
) -> None:
    found: list[object] = []
    task = task_of(lambda: found.append(baggage.get_baggage("user")))
    token = context.attach(baggage.set_baggage("user", "ann"))
    try:
        task.schedules.set("often", cron="*/10 * * * *", tz="UTC")
    finally:
        context.detach(token)
    ran = delayq.advance(minutes=15, run=True)
    assert found == [None] * len(ran) and ran
    # The link remains.
    assert all(run.links for run in named("process mail"))


def test_a_middleware_sees_when_a_job_was_made_and_how_late_it_is(delayq: DelayQ, spans: Any, named: Any) -> None:
    task_of(lambda: None).after(minutes=1).enqueue()
    delayq.advance(minutes=3)
    delayq.run_due()
    [run] = named("process mail")
    assert attributes(run)["delayq.late"] == pytest.approx(120, abs=5)
    assert timedelta(microseconds=(run.events[1].timestamp - run.events[0].timestamp) / 1_000).total_seconds() == (
        pytest.approx(60, abs=5)
    )
