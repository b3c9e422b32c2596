"""Traces: the middleware's path, a task that the tests of traces run, and parts of its SDK that may fail."""

from typing import Any

from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, Sampler, SamplingResult

from django_delayq import RetryPolicy
from django_delayq.task import registry
from django_delayq.task.task import Task

PATH = "django_delayq.middleware.opentelemetry.OpenTelemetryMiddleware"


class Failing(SpanProcessor):
    """Raises an `error` in the method `at`; also in that of the sampler."""

    at: str | None = None
    error: type[BaseException] = RuntimeError

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        self.fail("on_start")

    def on_end(self, span: Any) -> None:
        self.fail("on_end")

    def fail(self, method: str) -> None:
        """Raise the error if it is that of the method."""
        if self.at == method:
            raise self.error("no exporter")


#: The one of this process; tests set `at`.
failing = Failing()


class FailingSampler(Sampler):
    """Decides as the default sampler, unless it fails."""

    def should_sample(self, *args: Any, **kwargs: Any) -> SamplingResult:
        failing.fail("should_sample")
        return DEFAULT_ON.should_sample(*args, **kwargs)

    def get_description(self) -> str:
        return "may fail"


def task_of(func: Any, name: str = "shop.tasks.play") -> Task[Any, Any]:
    """Register a function as a task with two attempts."""
    retry = RetryPolicy(max_attempts=2, base=0.01, cap=0.01)
    task: Task[Any, Any] = Task(func=func, name=name, queue="mail", retry=retry)
    registry._tasks[task.name] = task
    return task
