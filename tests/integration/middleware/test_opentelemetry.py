"""The supplied middleware of OpenTelemetry, with its real SDK: request, enqueue and every attempt are one trace."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, TraceFlags, TraceState
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from django_delayq.job.outcome import OutcomeKind
from django_delayq.testing import DelayQ
from django_delayq.worker.execution import run
from tests.integration.middleware.traces import PATH, task_of
from tests.integration.worker.execution.claims import claim_of
from tests.subprocesses import ROOT, Processes

#: What a project puts into its settings. Only the exporter is not what it would use.
SETTINGS = """
import json
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

class ToFile(SpanExporter):
    def export(self, spans):
        with open({path!r}, "a") as collected:
            for span in spans:
                parent = span.parent and span.parent.span_id
                collected.write(json.dumps([span.name, span.context.trace_id, parent]) + "\\n")
        return SpanExportResult.SUCCESS

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ToFile()))
trace.set_tracer_provider(provider)
"""


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_the_request_the_enqueue_and_each_attempt_are_one_trace(
    spans: InMemorySpanExporter, delayq: DelayQ, is_async: bool
) -> None:
    inner: list[Any] = []

    def func() -> None:
        inner.append(trace.get_current_span().get_span_context().span_id)
        raise ValueError("no money")

    async def coroutine() -> None:
        func()

    task = task_of(coroutine if is_async else func)
    with trace.get_tracer("shop").start_as_current_span("request") as request:
        job = asyncio.run(task.aenqueue()) if is_async else task.enqueue()
    delayq.drain(errors="retry")
    sent, first, second = [span for span in spans.get_finished_spans() if span.name != "request"]
    assert {span.context.trace_id for span in (sent, first, second)} == {request.get_span_context().trace_id}
    assert sent.parent and sent.parent.span_id == request.get_span_context().span_id
    assert [span.parent and span.parent.span_id for span in (first, second)] == [sent.context.span_id] * 2
    assert inner == [first.context.span_id, second.context.span_id]
    assert (sent.name, sent.kind, first.name, first.kind) == (
        *("create mail", trace.SpanKind.PRODUCER),
        *("process mail", trace.SpanKind.CONSUMER),
    )
    attributes = first.attributes or {}
    assert attributes["messaging.message.id"] == job.id and attributes["delayq.task"] == "shop.tasks.play"
    assert [(span.attributes or {})["delayq.attempt"] for span in (first, second)] == [1, 2]
    assert first.status.status_code is trace.StatusCode.ERROR and [event.name for event in first.events] == [
        *("enqueued", "due", "exception"),
    ]
    assert sent.status.status_code is trace.StatusCode.UNSET


def test_no_span_has_an_argument(spans: InMemorySpanExporter, delayq: DelayQ) -> None:
    task_of(lambda card: None).enqueue("4111-canary")
    delayq.run_due()
    assert len(spans.get_finished_spans()) == 2
    assert "canary" not in "".join(span.to_json() for span in spans.get_finished_spans())


@pytest.mark.parametrize(
    ("user", "vendors", "kept"),
    [
        ("ann", 1, {"traceparent", "tracestate", "baggage"}),
        ("x" * 4_000, 1, {"traceparent", "tracestate"}),
        ("ann", 30, {"traceparent", "baggage"}),
        ("x" * 4_000, 30, {"traceparent"}),
        ("x" * 700, 4, {"traceparent", "tracestate"}),
    ],
    ids=["small", "large baggage", "large tracestate", "both large", "large together"],
)
@pytest.mark.parametrize("order", [1, -1], ids=["trace first", "baggage first"])
def test_large_headers_of_a_request_are_dropped_and_the_trace_stays(
    spans: InMemorySpanExporter,
    delayq: DelayQ,
    caplog: pytest.LogCaptureFixture,
    user: str,
    vendors: int,
    kept: set[str],
    order: int,
) -> None:
    task = task_of(lambda: None)
    caplog.set_level("DEBUG", logger="django_delayq")
    state = TraceState([(f"vendor{number}", "v" * 100) for number in range(vendors)])
    caller = SpanContext(int("a" * 32, 16), int("b" * 16, 16), True, TraceFlags(TraceFlags.SAMPLED), state)
    request = baggage.set_baggage("user", user, trace.set_span_in_context(trace.NonRecordingSpan(caller)))
    headers = {"traceparent", "tracestate", "baggage"}
    before = propagate.get_global_textmap()
    propagators = [TraceContextTextMapPropagator(), W3CBaggagePropagator()]
    propagate.set_global_textmap(CompositePropagator(propagators[::order]))
    token = context.attach(request)
    try:
        task.enqueue()
    finally:
        context.detach(token)
        propagate.set_global_textmap(before)
    stored = delayq.enqueued[0].context
    assert stored.keys() == kept
    whole = {"tracestate": state.to_header(), "baggage": f"user={user}"}
    assert {name: stored[name] for name in kept - {"traceparent"}} == {
        name: whole[name] for name in kept & whole.keys()
    }
    messages = " ".join(record.getMessage() for record in caplog.records)
    assert {name for name in headers if f"header {name} " in messages} == headers - kept
    delayq.run_due()
    assert {span.context.trace_id for span in spans.get_finished_spans()} == {caller.trace_id}


def test_a_key_of_the_project_is_not_taken_for_a_header(spans: InMemorySpanExporter) -> None:
    task = task_of(lambda: None)
    values = {"traceparent": 5, "tracestate": None, "baggage": ["suitcase"]}
    outcome = run(claim_of(task.name, context=values))
    assert outcome.kind is OutcomeKind.SUCCEEDED, outcome.error
    assert len(spans.get_finished_spans()) == 1


@pytest.mark.parametrize("pool", ["threads", "processes", "asyncio"])
def test_a_trace_reaches_the_process_that_runs_the_task(
    spans: InMemorySpanExporter,
    processes: Processes,
    task_module: Callable[[str, str], ModuleType],
    pool: str,
) -> None:
    shop = task_module("shop_tasks", "from django_delayq import delayed_task\n@delayed_task\nasync def play(): pass\n")
    processes.configure(MIDDLEWARE=[PATH])
    path = processes.folder / "spans"
    with open(processes.folder / "process_settings.py", "a") as project:
        project.write(SETTINGS.format(path=str(path)))
    processes.worker(f"--pool={pool}", "--concurrency=1")
    processes.until_gone([shop.play.enqueue()])
    [sent] = spans.get_finished_spans()
    line = processes.until(lambda: path.exists() and path.read_text(), what="the span of the run")
    assert line == f'["process default", {sent.context.trace_id}, {sent.context.span_id}]\n'


def test_without_its_package_the_error_names_the_extra() -> None:
    program = f"""
import sys
sys.modules["opentelemetry"] = None
import django
from django.conf import settings
settings.configure(DELAYQ={{"REDIS": "redis://127.0.0.1:1/0", "MIDDLEWARE": [{PATH!r}]}})
django.setup()
from django_delayq.checks import check_middleware
print(check_middleware()[0].msg)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "pip install 'django-delayq[otel]'" in done.stdout, done.stderr
