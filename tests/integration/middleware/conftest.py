"""The fixture of the tests of middlewares: list some, and forget what earlier tests made them do."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.integration.middleware import classes
from tests.integration.middleware.traces import PATH, Failing, FailingSampler, failing


@pytest.fixture
def middleware(delayq_settings: Any) -> Iterator[Callable[..., None]]:
    """List classes of `classes.py` in MIDDLEWARE: `middleware("Outer", "Inner")`."""

    def list_classes(*names: str) -> None:
        paths = [f"{classes.__name__}.{name}" for name in names]
        delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "MIDDLEWARE": paths}
        classes.seen.clear()

    token = classes.request_id.set("none")
    yield list_classes
    classes.request_id.reset(token)
    classes.Filling.value = classes.Refusing.at_enqueue = classes.Refusing.at_run = None
    classes.Calling.enqueue_by = classes.Calling.run_by = None


@pytest.fixture(scope="session")
def exporter() -> InMemorySpanExporter:
    """The spans of this process; OpenTelemetry allows one provider in each."""
    collected, provider = InMemorySpanExporter(), TracerProvider(sampler=FailingSampler())
    provider.add_span_processor(SimpleSpanProcessor(collected))
    # After the exporter, so that a span that fails at its end is there.
    provider.add_span_processor(failing)
    trace.set_tracer_provider(provider)
    return collected


@pytest.fixture
def spans(exporter: InMemorySpanExporter, delayq_settings: Any, registered: Any) -> Iterator[InMemorySpanExporter]:
    """The spans of one test."""
    registered()
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "MIDDLEWARE": [PATH]}
    exporter.clear()
    yield exporter
    failing.at, failing.error = None, Failing.error
