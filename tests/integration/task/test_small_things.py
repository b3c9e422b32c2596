"""What people trip over who come from another task queue: the error names what to write."""

import inspect
from datetime import timedelta
from typing import Any

import pytest

from django_delayq.testing import DelayQ
from tests.sample_app.tasks import noop, record

METHODS = {
    "delay": r"write task\.enqueue\(…\) with the same arguments, or task\.after\(60\)",
    "apply_async": r"write task\.using\(delay=60, .*\)\.enqueue\(\*args, \*\*kwargs\)",
    "send": r"write task\.enqueue\(…\)",
    "schedule": r"write task\.after\(60\)\.enqueue",
    "delay_on_commit": r"write task\.enqueue\(…\): inside a transaction",
    "apply": r"write task\(…\)",
    "s": r"write task\.job\(…\) for enqueue_many\(\)",
    "si": r"write task\.job\(…\) for enqueue_many\(\)",
}


@pytest.mark.parametrize("method", METHODS)
def test_a_method_of_another_task_queue_says_what_to_write(method: str) -> None:
    with pytest.raises(AttributeError, match=rf"the task {noop.name} has no {method}\(\): {METHODS[method]}"):
        getattr(noop.after(5), method)(1)
    assert not hasattr(noop, method)
    assert not hasattr(type(noop), method)


def test_after_shows_its_unit(delayq: DelayQ) -> None:
    assert next(iter(inspect.signature(noop.after).parameters)) == "seconds"
    with delayq._clock.frozen():
        noop.after(60).enqueue()
        noop.after(timedelta(minutes=2)).enqueue()
        noop.after(minutes=2, seconds=30).enqueue()
        assert [job.due_in.total_seconds() for job in delayq.enqueued if job.due_in] == [60, 120, 150]
    with pytest.raises(TypeError, match="not both"):
        noop.after(60, seconds=5)


def test_a_batch_takes_tuples_and_dicts(delayq: DelayQ) -> None:
    handles = record.enqueue_many([(1, 2), {"to": "ann"}, [3], {}])
    assert len(handles) == 4
    assert [(job.args, job.kwargs) for job in delayq.enqueued] == [
        ([1, 2], {}),
        ([], {"to": "ann"}),
        ([3], {}),
        ([], {}),
    ]
    assert record.enqueue_many(({"n": n} for n in range(3)), on_progress=lambda _: None) == 3


@pytest.mark.parametrize("wrong", [5, "ab", b"ab", None])
def test_a_batch_of_bare_values_is_refused(delayq: DelayQ, wrong: Any) -> None:
    words = rf"for each job, got {type(wrong).__name__}; write \(value,\) for a single argument"
    with pytest.raises(TypeError, match=words):
        record.enqueue_many([(1,), wrong])
    assert delayq.enqueued == []
