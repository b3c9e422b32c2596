"""Declaration of Django's tasks: methods of other task queues."""

import inspect
import pickle

import pytest

from tests.sample_app import django_tasks

METHODS = {
    "delay": r"write task\.enqueue\(…\) with the same arguments, or task\.using\(run_after=…\)",
    "apply_async": r"write task\.using\(run_after=…, queue_name=…\)\.enqueue\(",
    "send": r"write task\.enqueue\(…\)",
    "schedule": r"write task\.using\(run_after=…\)\.enqueue\(…\)",
    "after": r"write task\.using\(run_after=…\)\.enqueue\(…\)",
    "at": r"write task\.using\(run_after=…\)\.enqueue\(…\)",
    "delay_on_commit": r"write task\.enqueue\(…\), and set OPTIONS\['ON_COMMIT'\]",
    "apply": r"write task\.call\(…\)",
    "enqueue_many": r"write a loop of task\.enqueue\(…\)",
}


@pytest.mark.parametrize("method", METHODS)
def test_a_method_of_another_task_queue_says_what_to_write(method: str) -> None:
    with pytest.raises(AttributeError, match=rf"the task add has no {method}\(\): {METHODS[method]}"):
        getattr(django_tasks.add, method)(1)
    assert not hasattr(django_tasks.add, method)
    assert not hasattr(type(django_tasks.add), method)


def test_absent_methods_are_no_part_of_djangos_dataclass() -> None:
    task = django_tasks.add
    assert not set(METHODS) & {*task.__dataclass_fields__, *dict(inspect.getmembers(task))}
    assert pickle.loads(pickle.dumps(task)) == task == task.using(priority=0)
    assert "delay" not in repr(task).replace("delayq", "").replace("DelayQ", "")
