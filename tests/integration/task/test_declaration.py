"""Declaration of a task: it uses the project's defaults, and refuses a function that a worker could not run."""

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.core.checks import CheckMessage, run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import SystemCheckError

from django_delayq import RetryPolicy, delayed_task, enqueue_many
from django_delayq.conf import exception_classes
from tests.integration.task.stored import stored
from tests.sample_app.tasks import noop

pytestmark = pytest.mark.usefixtures("delayq_settings")


def test_defaults_of_the_project_reach_the_job(delayq_settings: Any) -> None:
    policy = RetryPolicy(max_attempts=9)
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "RETRY": policy, "PREFIX": "shop"}
    assert stored(noop.enqueue()).retry == policy
    assert stored(noop.using(retry=RetryPolicy(max_attempts=1)).enqueue()).retry.max_attempts == 1


class Shop:
    def remind(self) -> None: ...

    @classmethod
    def open(cls) -> None: ...


def generate() -> Iterator[int]:
    yield 1


async def generate_async() -> Any:
    yield 1


def nested() -> Any:
    def inner() -> None: ...

    return inner


@pytest.mark.parametrize(
    ("func", "words"),
    [
        (lambda: None, "lambda"),
        (nested(), r"nested function .*inner.*module level"),
        (Shop.remind, r"method .*Shop\.remind.*module level"),
        (Shop.open, "plain function"),
        (Shop, "plain function"),
        (Shop(), "plain function"),
        (len, "plain function"),
        ("shop.remind", "plain function"),
        (generate, "generator .*generate"),
        (generate_async, "generator .*generate_async"),
    ],
)
def test_a_function_that_a_worker_could_not_run_is_refused_at_decoration(func: Any, words: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=words):
        delayed_task(func)


POLICY = """
from django_delayq import RetryPolicy, delayed_task

@delayed_task(retry=RetryPolicy(retry_on={path!r}, delays=[5]), aliases=["shop.charge"])
def charge(): ...

class Declined(Exception): ...

again = Declined
"""


@pytest.fixture
def late_tasks(own_registry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Import a module `late_tasks` whose task `charge` has a policy with the given path, and return the module."""
    monkeypatch.syspath_prepend(str(tmp_path))
    # The module is another one in each test.
    monkeypatch.setattr(exception_classes, "_known", {})

    def make(path: str) -> ModuleType:
        (tmp_path / "late_tasks.py").write_text(POLICY.format(path=path))
        (tmp_path / "late_errors.py").write_text("import no_such_driver")
        return import_module("late_tasks")

    yield make
    for name in ("late_tasks", "late_errors"):
        sys.modules.pop(name, None)


def policy_errors() -> list[CheckMessage]:
    return [each for each in run_checks() if each.id == "delayq.E009"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (
            "late_tasks.Declind",
            r"has 'late_tasks.Declind', but late_tasks has no 'Declind' \(did you mean 'Declined'\?\)",
        ),
        ("late_tasks.POLICY", "has 'late_tasks.POLICY', but late_tasks has no 'POLICY'"),
        ("late_errors.Gone", "late_errors cannot be imported: No module named 'no_such_driver'; mend that module"),
    ],
)
def test_a_path_that_the_declaration_could_not_judge_is_judged_before_anything_is_stored(
    late_tasks: Callable[[str], Any], client: Any, path: str, words: str
) -> None:
    task = late_tasks(path).charge
    [problem] = policy_errors()
    assert problem.msg.startswith(f"retry_on of the task late_tasks.charge has {path!r}") and problem.hint
    with pytest.raises(SystemCheckError, match="delayq.E009"):
        call_command("run_worker", "--drain", skip_checks=False)
    for act in (task.enqueue, task.job, lambda: enqueue_many([noop.job(), task.job()])):
        for _ in range(2):
            with pytest.raises(ValueError, match=f"^retry_on of the task late_tasks.charge .*{words}"):
                act()
    assert client.keys("*") == []


@pytest.mark.parametrize("path", ["late_tasks.Declined", "late_tasks.again"])
def test_a_class_below_the_task_in_its_module_is_found_at_the_first_job(
    late_tasks: Callable[[str], Any], path: str
) -> None:
    task = late_tasks(path).charge
    assert policy_errors() == []
    assert task.has_open_rules
    assert stored(task.enqueue()).retry.retry_on == ("late_tasks.Declined",)
    assert not task.has_open_rules
    assert not task.after(5).has_open_rules


def test_a_policy_that_was_judged_at_the_declaration_is_not_judged_again(own_registry: None) -> None:
    policy = RetryPolicy(retry_on="json.JSONDecodeError")
    task = delayed_task(retry=policy)(charge_now)
    judged = task.retry
    assert judged is not None and judged.retry_on == ("json.decoder.JSONDecodeError",)
    assert not task.has_open_rules
    handle = task.job()
    assert handle.job and handle.job.retry is task.retry is judged


def charge_now() -> None: ...
