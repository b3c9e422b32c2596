"""Output: what the pages show of the output of commands is what the code prints."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError

from django_delayq import RetryPolicy, delayed_task
from django_delayq.clock import moment_us
from django_delayq.management import operating
from django_delayq.management.commands.delayq_schedules import _line
from django_delayq.management.commands.delayq_stats import _BAR
from django_delayq.management.operating import progress_bar
from django_delayq.task import registry
from django_delayq.testing import DelayQ
from tests.integration.commands.operating.printed import run
from tests.testing_helpers.docs.generated import DOCS, KEYS_PAGE, diagrams, keys_page
from tests.testing_helpers.docs.pages import runs, shown

PROGRESS = shown("docs/tasks/handles.md", "text")
OPERATING = "docs/running/operating.md"
CHANGES = shown(OPERATING, "console", "$ python manage.py delayq_jobs")
SCHEDULES = shown(OPERATING, "console", "$ python manage.py delayq_schedules")
DIGEST = {"task": "shop.tasks.send_digest", "fault": None}


class ProviderDown(Exception):
    """The error of the page."""


def send_digest() -> None:
    """Fail."""
    raise ProviderDown


@pytest.fixture
def task() -> Iterator[Any]:
    """The task of the page until the end of a test."""
    with registry.override():
        yield delayed_task(name="shop.tasks.send_digest", retry=RetryPolicy(max_attempts=1))(send_digest)


def question(*command: str) -> str:
    """Return the question of a command, which asks nobody if there is no terminal."""
    with pytest.raises(CommandError) as raised:
        run(*command)
    return f"{str(raised.value).partition('?')[0]}? [y/N] y"


@runs(PROGRESS)
def test_the_bar_of_a_running_job() -> None:
    assert f"{progress_bar(0.4, width=_BAR)} {0.4:4.0%} 2,000 of 5,000\n" == PROGRESS


@runs(CHANGES)
def test_the_output_of_changes(task: Any, delayq: DelayQ, settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    # Before the end of the pause on the page, whatever the real date.
    delayq._clock.now_us = moment_us(datetime(2027, 1, 4, tzinfo=UTC))
    for _ in range(3):
        task.enqueue()
    delayq.run_due(errors="retry")
    failed = ("--error", "ProviderDown")
    seen = f"{42_250:,} of {90_000:,}, {42_250:,} changed"
    printed = [
        run("delayq_jobs", "--state", "failed", *failed, "--count").strip().replace("3", "90,000"),
        question("delayq_requeue", *failed).replace("3", "90,000"),
        f"{progress_bar(42_250 / 90_000, width=operating._BAR)} {seen}",
        run("delayq_requeue", *failed, "--yes").strip().replace("3", "90,000"),
        run("delayq_pause", "mail", "--until", "2027-01-31T08:00", "--yes").strip(),
    ]
    assert [line for line in CHANGES.splitlines() if not line.startswith("$ ")] == printed


@runs(SCHEDULES)
def test_the_output_of_a_schedule(task: Any, delayq: DelayQ) -> None:
    task.schedules.set("customer 4711", every=3600)
    task.schedules.get("customer 4711").pause()
    waiting = {"state": "waiting", "next": "2027-01-05T08:00:00+00:00", "failures": 0, "name": "everybody"}
    paused = {"state": "paused", "next": None, "failures": 5, "name": "customer 4711", "rule": "every 1 h"}
    resume = ("delayq_schedules", "send_digest", "customer 4711", "--resume")
    printed = [
        _line(DIGEST | paused | {"last": {"outcome": "failed", "took": 2.0}}),
        _line(
            DIGEST | waiting | {"rule": "0 9 * * mon-fri (Europe/Berlin)", "last": {"outcome": "done", "took": 41.2}}
        ),
        question(*resume),
        run(*resume, "--yes").strip(),
    ]
    assert [line for line in SCHEDULES.splitlines() if not line.startswith("$ ")] == printed


def test_the_table_of_keys_is_the_generated_one() -> None:
    assert KEYS_PAGE.read_text() == keys_page(), "run `make pages` and commit it"


def test_the_diagrams_are_those_that_the_script_draws() -> None:
    images: dict[str, Path] = {name: DOCS / "images" / name for name in diagrams()}
    drawn = {name: path.read_text() for name, path in images.items()}
    assert drawn == diagrams(), "run `make pages` and commit it"
    page = KEYS_PAGE.read_text()
    assert all(f"](../images/{name})" in page for name in images)
