"""Batches: what a middleware enters once for a call of `enqueue_many()`."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from django_delayq.exceptions import PayloadNotSerializable
from django_delayq.testing import DelayQ
from tests.integration.middleware import classes
from tests.integration.middleware.traces import task_of

Middlewares = Callable[..., None]


@dataclass
class Once:
    """Enters a context manager once for a batch. A dataclass has no hash."""

    next: Any

    def enqueue(self, job: Any) -> Any:
        classes.seen.append(job.batch.once(self, self._enter))
        return self.next.enqueue(job)

    async def aenqueue(self, job: Any) -> Any:
        classes.seen.append(job.batch.once(self, self._enter))
        return await self.next.aenqueue(job)

    @contextmanager
    def _enter(self) -> Iterator[str]:
        classes.seen.append("entered")
        try:
            yield "value"
        except Exception as error:
            classes.seen.append(type(error).__name__)
            raise
        classes.seen.append("left")


@dataclass
class Suppressing(Once):
    """Suppresses the exception of the call."""

    @contextmanager
    def _enter(self) -> Iterator[str]:
        with super()._enter() as value:
            try:
                yield value
            except Exception:
                classes.seen.append("suppressed")


@pytest.fixture
def listed(delayq_settings: Any, registered: Any, middleware: Middlewares) -> Middlewares:
    """List classes of this module in MIDDLEWARE."""
    registered()

    def list_classes(*names: str) -> None:
        classes.seen.clear()
        delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "MIDDLEWARE": [f"{__name__}.{name}" for name in names]}

    return list_classes


def enqueue_many(arguments: list[tuple[Any]], *, is_async: bool) -> Any:
    """Enqueue many jobs in one of the two ways."""
    task = task_of(lambda number: None)
    return asyncio.run(task.aenqueue_many(arguments)) if is_async else task.enqueue_many(arguments)


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_context_manager_is_entered_once_for_a_batch(delayq: DelayQ, listed: Middlewares, is_async: bool) -> None:
    listed("Once")
    assert len(enqueue_many([(1,), (2,)], is_async=is_async)) == 2
    assert classes.seen == ["entered", "value", "value", "left"]
    assert len(delayq.enqueued) == 2


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_no_context_manager_suppresses_the_error_of_the_call(
    delayq: DelayQ, listed: Middlewares, is_async: bool
) -> None:
    listed("Once", "Suppressing")
    with pytest.raises(PayloadNotSerializable):
        enqueue_many([(1,), ({2},)], is_async=is_async)
    assert "suppressed" in classes.seen
    # The other one learns of it.
    assert classes.seen[-1] == "PayloadNotSerializable"
    assert delayq.enqueued == []
