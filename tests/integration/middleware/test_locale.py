"""The supplied middleware of language and time zone."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any

import pytest
from django.utils import timezone, translation

from django_delayq.job.outcome import OutcomeKind
from django_delayq.task import registry
from django_delayq.task.task import Task
from django_delayq.testing import DelayQ
from django_delayq.worker.execution import run_async
from tests.integration.worker.execution.claims import claim_of

PATH = "django_delayq.middleware.locale.LocaleMiddleware"


@pytest.fixture
def seen() -> list[Any]:
    """Language and time zone of each run."""
    return []


@pytest.fixture
def play(delayq_settings: Any, registered: Callable[..., None], seen: list[Any]) -> Callable[..., Task[Any, Any]]:
    """Make the task, plain or async."""
    registered()
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "MIDDLEWARE": [PATH]}

    def func() -> None:
        moment = timezone.localtime(timezone.now())
        seen.append((translation.get_language(), moment.utcoffset().total_seconds() / 3_600))  # type: ignore[union-attr]

    async def coroutine() -> None:
        await asyncio.sleep(0)
        func()

    def make(*, is_async: bool = False) -> Task[Any, Any]:
        task: Task[Any, Any] = Task(func=coroutine if is_async else func, name="shop.tasks.play")
        registry._tasks[task.name] = task
        return task

    return make


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize(
    ("language", "zone", "offset"),
    [("de", "Asia/Tokyo", 9.0), ("pt-br", timezone.get_fixed_timezone(330), 5.5), (None, "UTC", 0.0)],
    ids=["named", "fixed offset", "no language"],
)
def test_a_job_has_the_language_and_time_zone_of_its_enqueue(
    play: Any, seen: list[Any], delayq: DelayQ, is_async: bool, language: Any, zone: Any, offset: float
) -> None:
    task = play(is_async=is_async)
    with translation.override(language), timezone.override(zone):
        task.enqueue()
        asyncio.run(task.aenqueue())
    delayq.run_due()
    assert seen == [(language, offset)] * 2


def test_it_holds_in_an_event_loop_and_ends_with_the_run(play: Any, seen: list[Any]) -> None:
    name = play(is_async=True).name
    context = {"delayq.locale": {"language": "de", "time_zone": "Asia/Tokyo"}}
    asyncio.run(run_async(claim_of(name, context=context)))
    before = (translation.get_language(), timezone.get_current_timezone_name())
    assert seen == [("de", 9.0)] and before[0] != "de" and "Tokyo" not in before[1]


@pytest.mark.parametrize(
    "context",
    [None, {"language": "xx"}, {"language": "de", "time_zone": "Asia/Tokyo"}],
    ids=["none", "a language of the project", "the keys of an older release"],
)
def test_a_job_without_its_keys_has_the_defaults(play: Any, seen: list[Any], context: Any) -> None:
    claim = claim_of(play(is_async=True).name, context=context)
    outcome = Context().run(lambda: asyncio.run(run_async(claim)))
    assert outcome.kind is OutcomeKind.SUCCEEDED, outcome.error
    [(language, _)] = seen
    assert language == Context().run(translation.get_language)
