"""Declaration of Django's tasks: exceptions that do not exist, and methods of other task queues."""

import inspect
import pickle
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from redis import Redis

from django_delayq import Recurring, RetryPolicy, get_store
from django_delayq.conf import exception_classes
from django_delayq.job.job import DJANGO_TASK
from django_delayq.task.recurring.declarations import make_declarations
from tests.django_tasks.compat import InvalidTask, default_task_backend
from tests.django_tasks.conftest import with_options
from tests.sample_app import django_tasks

MODULE = """
from django_delayq import RetryPolicy
from django_delayq.backend.backend import DelayQTask

def declare(func):
    options = {{"retry": RetryPolicy(dead_on={path!r})}}
    given = {{"priority": 0, "backend": "default", "queue_name": "default", "run_after": None, "takes_context": False}}
    return DelayQTask(func=func, delayq=options, **given)

@declare
def resize(): ...

class Broken(Exception): ...
"""
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


@pytest.fixture
def late_tasks(registered: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Import a module `late_django_tasks` whose task has a policy with the given path, and return the task."""
    registered()
    monkeypatch.syspath_prepend(str(tmp_path))
    # The module is another one in each test.
    monkeypatch.setattr(exception_classes, "_known", {})

    def make(path: str) -> Any:
        (tmp_path / "late_django_tasks.py").write_text(MODULE.format(path=path))
        (tmp_path / "late_django_errors.py").write_text("import no_such_driver")
        return import_module("late_django_tasks").resize

    yield make
    sys.modules.pop("late_django_tasks", None)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("late_django_tasks.Brokn", "late_django_tasks has no 'Brokn'.*did you mean 'Broken'"),
        ("late_django_errors.Gone", "late_django_errors cannot be imported: No module named 'no_such_driver'"),
    ],
)
def test_a_path_that_the_declaration_could_not_judge_is_judged_before_anything_is_stored(
    late_tasks: Callable[[str], Any], client: Redis, path: str, words: str
) -> None:
    task = late_tasks(path)
    [problem] = default_task_backend.check()
    assert problem.id == "delayq.E009"
    assert problem.msg.startswith("dead_on of delayq of the task late_django_tasks.resize['retry'] has ")
    with pytest.raises((InvalidTask, ValueError), match=words):
        task.enqueue()
    assert client.keys("*:jobs") == []
    # The other tasks of the alias are not affected.
    django_tasks.add.enqueue(1)


def test_a_class_below_the_task_in_its_module_is_found(late_tasks: Callable[[str], Any]) -> None:
    task = late_tasks("late_django_tasks.Broken")
    assert default_task_backend.check() == []
    task.enqueue()


def test_a_module_that_fails_is_reported_for_options_in_settings(
    late_tasks: Callable[[str], Any], tasks_settings: Any
) -> None:
    late_tasks("late_django_tasks.Broken")
    retry = RetryPolicy(retry_on="late_django_errors.Gone")
    with_options(tasks_settings, TASKS={django_tasks.add.module_path: {"retry": retry}})
    words = r"retry_on of TASKS\['default'\].*'late_django_errors.Gone', but late_django_errors cannot be imported"
    [problem] = default_task_backend.check()
    assert problem.id == "delayq.E013"
    with pytest.raises(ImproperlyConfigured, match=words):
        django_tasks.add.enqueue(1)


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


def test_options_declare_recurring_schedules(tasks_settings: Any) -> None:
    options = {"cron": "0 3 * * *", "recurring": [Recurring("hourly", every=3_600, args=["a"])]}
    with_options(tasks_settings, TASKS={django_tasks.fail.module_path: options})
    found = make_declarations(get_store(), 0).definitions
    assert sorted((each.schedule.name, each.job.args, each.job.kind) for each in found) == [
        ("default", [], DJANGO_TASK),
        ("hourly", ["a"], DJANGO_TASK),
    ]
    assert not default_task_backend.check()


def test_schedules_that_do_not_fit_are_reported(tasks_settings: Any) -> None:
    with_options(tasks_settings, TASKS={django_tasks.add.module_path: {"every": 60}})
    (problem,) = default_task_backend.check()
    assert problem.id == "delayq.E013"
    assert "the arguments of the schedule 'default' do not fit the task" in problem.msg
    with_options(tasks_settings, TASKS={django_tasks.add.module_path: {"cron": "0 3 * *"}})
    (problem,) = default_task_backend.check()
    assert "cron='0 3 * *' cannot be read" in problem.msg
    # Nothing is declared, and nothing fails.
    assert make_declarations(get_store(), 0).definitions == []


def test_schedules_are_set_at_run_time(tasks_settings: Any) -> None:
    with_options(tasks_settings, TASKS={django_tasks.add.module_path: {"timeout": 60}})
    django_tasks.add.schedules.set("digest:42", every=60, args=[1])
    found = django_tasks.add.schedules.get("digest:42")
    assert (found.name, found.task) == ("digest:42", django_tasks.add.module_path)
    assert found.delete()
