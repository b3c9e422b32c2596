"""An exception of OpenTelemetry, or of what the project gives to it, changes nothing for the job."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from django_delayq.exceptions import TaskTimeout
from django_delayq.middleware import log_errors
from django_delayq.middleware.log_errors import LogErrors
from django_delayq.middleware.opentelemetry import OpenTelemetryMiddleware
from django_delayq.testing import DelayQ
from tests.integration.middleware import classes
from tests.integration.middleware.traces import PATH, failing, task_of


class FailingPropagator(TextMapPropagator):
    """Raises in one of its methods, or injects `value` if it has one."""

    def __init__(self, at: str, value: Any = None) -> None:
        self.at, self.value = at, value

    def extract(self, carrier: Any, context: Any = None, *args: Any, **kwargs: Any) -> Any:
        if self.at == "extract":
            raise RuntimeError("no extract")
        return context

    def inject(self, carrier: Any, context: Any = None, *args: Any, **kwargs: Any) -> None:
        if self.value is not None:
            carrier["vendor"] = self.value
        elif self.at == "inject":
            raise RuntimeError("no inject")

    @property
    def fields(self) -> set[str]:
        return {"vendor"}


class Undecided(OpenTelemetryMiddleware):
    """Has an error in its own method."""

    def continues_trace(self, job: Any) -> bool:
        raise LookupError("which trace")


@pytest.fixture
def fail(
    spans: InMemorySpanExporter, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], None]]:
    """Let a part of OpenTelemetry raise. No exception has been logged in this process."""
    monkeypatch.setattr(log_errors, "_logged", set())
    before = propagate.get_global_textmap()

    def let_fail(part: str) -> None:
        if part in ("inject", "extract"):
            propagate.set_global_textmap(
                CompositePropagator([TraceContextTextMapPropagator(), FailingPropagator(part)])
            )
        elif part == "continues_trace":
            settings.DELAYQ = {**settings.DELAYQ, "MIDDLEWARE": [f"{__name__}.Undecided"]}
        else:
            failing.at = part

    yield let_fail
    propagate.set_global_textmap(before)


PARTS = ["on_start", "on_end", "should_sample", "inject", "extract", "continues_trace"]


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("part", PARTS)
def test_the_job_is_enqueued_and_succeeds_in_one_attempt(
    delayq: DelayQ, fail: Callable[[str], None], caplog: pytest.LogCaptureFixture, part: str, is_async: bool
) -> None:
    fail(part)
    ran: list[int] = []

    async def coroutine() -> None:
        ran.append(1)

    if is_async:
        task = task_of(coroutine)
        asyncio.run(task.aenqueue())
        asyncio.run(task.aenqueue_many([()]))
    else:
        task = task_of(lambda: ran.append(1))
        task.enqueue()
        task.enqueue_many([()])
    runs = delayq.drain()
    assert [(run.attempt, run.ending) for run in runs] == [(1, "succeeded")] * 2
    assert ran == [1, 1]
    assert "Tracing could not " in caplog.text


def test_a_time_limit_of_the_task_is_no_error_of_tracing() -> None:
    with pytest.raises(TaskTimeout), LogErrors("start a span"):
        raise TaskTimeout


@pytest.mark.parametrize("part", PARTS)
def test_the_error_of_the_job_stays_its_own(delayq: DelayQ, fail: Callable[[str], None], part: str) -> None:
    fail(part)

    def play() -> None:
        raise ValueError("no money")

    task_of(play).enqueue()
    [run] = delayq.run_due(errors="retry")
    assert run.ending == "failed" and run.error.splitlines()[-1] == "ValueError: no money"


@pytest.mark.parametrize("part", PARTS)
def test_the_first_exception_of_a_kind_is_logged_with_its_cure(
    delayq: DelayQ, fail: Callable[[str], None], caplog: pytest.LogCaptureFixture, part: str
) -> None:
    fail(part)
    caplog.set_level("WARNING", logger="django_delayq")
    task = task_of(lambda: None)
    for _ in range(3):
        task.enqueue()
    delayq.drain()
    [record] = [record for record in caplog.records if record.getMessage().startswith("Tracing could not ")]
    assert record.levelname == "WARNING"
    assert "correct the code in which this traceback ends" in record.getMessage()


def test_the_log_does_not_show_the_error_of_the_task(
    delayq: DelayQ, fail: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    def play() -> None:
        raise ValueError("4111-canary")

    task_of(play).enqueue()
    fail("on_end")
    delayq.run_due(errors="retry")
    [record] = [record for record in caplog.records if record.getMessage().startswith("Tracing could not ")]
    assert "RuntimeError: no exporter" in record.getMessage() and "canary" not in record.getMessage()
    # Error reports show the variables of the frames of an exception.
    assert record.exc_info is None


def test_a_job_whose_span_cannot_start_belongs_to_the_span_of_the_request(
    spans: InMemorySpanExporter, delayq: DelayQ, fail: Callable[[str], None]
) -> None:
    seen: list[int] = []
    task = task_of(lambda: seen.append(trace.get_current_span().get_span_context().span_id))
    with trace.get_tracer("shop").start_as_current_span("request") as request:
        fail("on_start")
        task.enqueue()
    delayq.drain()
    assert seen == [request.get_span_context().span_id]


def test_what_is_no_exception_of_tracing_passes(delayq: DelayQ, fail: Callable[[str], None]) -> None:
    failing.error = KeyboardInterrupt
    fail("on_end")
    with pytest.raises(KeyboardInterrupt):
        task_of(lambda: None).enqueue()


@pytest.mark.parametrize("value", [5, None, "\ud800", ["a"]], ids=["int", "nothing", "surrogate", "list"])
def test_a_header_that_is_no_text_is_left_out(
    spans: InMemorySpanExporter, delayq: DelayQ, fail: Callable[[str], None], value: Any
) -> None:
    propagate.set_global_textmap(CompositePropagator([TraceContextTextMapPropagator(), FailingPropagator("", value)]))
    task_of(lambda: None).enqueue()
    assert delayq.enqueued[0].context.keys() == {"traceparent"}
    delayq.drain()
    assert len({span.context.trace_id for span in spans.get_finished_spans()}) == 1


@pytest.mark.parametrize("is_many", [False, True], ids=["one", "many"])
@pytest.mark.parametrize(
    ("filled", "kept"),
    [
        (2_900, {"traceparent", "baggage"}),
        (3_300, {"traceparent"}),
        (4_050, set()),
    ],
    ids=["room for all", "room for the trace", "no room"],
)
def test_the_headers_take_what_is_left_of_the_context(
    spans: InMemorySpanExporter, delayq: DelayQ, settings: Any, filled: int, kept: set[str], is_many: bool
) -> None:
    settings.DELAYQ = {**settings.DELAYQ, "MIDDLEWARE": [f"{classes.__name__}.Filling", PATH]}
    classes.Filling.value = "x" * filled
    task = task_of(lambda: None)
    token = context.attach(baggage.set_baggage("user", "x" * 800))
    try:
        task.enqueue_many([()]) if is_many else task.enqueue()
    finally:
        context.detach(token)
        classes.Filling.value = None
    stored = delayq.enqueued[0].context
    assert stored.keys() & {"traceparent", "baggage"} == kept
    assert ("delayq.trace_of_batch" in stored) is (is_many and bool(kept))
