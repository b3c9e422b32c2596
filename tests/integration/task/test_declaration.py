"""Declaration of a task: it uses the project's defaults, and refuses a function that a worker could not run."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_delayq import RetryPolicy, delayed_task
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
