"""The commands on jobs and queues: what they find, change, print and refuse."""

from argparse import ArgumentTypeError
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_delayq import RetryPolicy, delayed_task, get_job, jobs, queue
from django_delayq.control.jobs import Jobs
from django_delayq.management.operating import NOT_CONFIRMED, NOT_FOUND, span, time_or_span
from django_delayq.testing import DelayQ
from tests.integration.commands.operating.printed import read, run
from tests.sample_app import tasks


@delayed_task(retry=RetryPolicy(max_attempts=1), sensitive=("secret",), name="operating.refuse")
def refuse(secret: str) -> None:
    """Fail for good."""
    raise ValueError("as asked")


@pytest.fixture
def mixed(delayq: DelayQ) -> list[str]:
    """Two failed jobs, three scheduled ones and a ready one; returns the ids of the failed ones."""
    failed = [refuse.using(queue=name).enqueue("hidden").id for name in ("mail", "other")]
    delayq.drain(errors="retry")
    for hours in (1, 2, 3):
        tasks.noop.using(queue="mail").after(hours=hours).enqueue(hours)
    tasks.noop.using(queue="other", key="k").enqueue("now")
    return failed


def test_jobs_lists_what_the_filters_find(mixed: list[str]) -> None:
    found = read("delayq_jobs")
    assert sorted(each["state"] for each in found) == ["failed"] * 2 + ["ready"] + ["scheduled"] * 3
    assert [each["id"] for each in read("delayq_jobs", "--state", "failed")] == mixed
    assert [each["queue"] for each in read("delayq_jobs", "--task", "refuse", "--queue", "other")] == ["other"]
    assert len(read("delayq_jobs", "--error", "ValueError")) == 2
    assert len(read("delayq_jobs", "--due-before", "90m")) == 2
    assert read("delayq_jobs", "--queue", "nowhere") == []
    assert read("delayq_jobs", "--count", "--state", "scheduled") == {"matched": 3, "missing": []}
    assert len(read("delayq_jobs", "--limit", "2")) == 2
    assert len(run("delayq_jobs", "--limit", "0").splitlines()) == 6


def test_no_command_shows_a_sensitive_argument(mixed: list[str]) -> None:
    for command in (("delayq_jobs",), ("delayq_jobs", mixed[0]), ("delayq_stats",)):
        assert "hidden" not in run(*command) + run(*command, "--json")
    assert "ValueError: as asked" in run("delayq_jobs", "--state", "failed")


def test_a_job_is_shown_with_its_attempts(mixed: list[str]) -> None:
    facts = read("delayq_jobs", mixed[0])[0]
    assert (facts["state"], facts["task"], facts["attempts"], facts["max_attempts"]) == (
        "failed",
        "operating.refuse",
        1,
        1,
    )
    assert "ValueError: as asked" in facts["history"][0]["error"]
    text = run("delayq_jobs", mixed[0])
    assert "attempt 1: failed" in text
    [ready] = jobs(state="ready")
    assert [each["key"] for each in read("delayq_jobs", mixed[1], ready.id)] == [None, "k"]
    shown = run("delayq_jobs", mixed[1], ready.id).split("\n\n")
    assert [each.split(maxsplit=2)[1] for each in shown] == [mixed[1], ready.id]


@pytest.mark.parametrize("unknown", ["nonsense", "01a2086773ebaaaabbbbcccc-0", "01a2086773ebaaaabbbbcccc-9"])
def test_an_id_of_no_job_is_refused(delayq: DelayQ, unknown: str) -> None:
    with pytest.raises(CommandError, match="There is no job") as raised:
        run("delayq_jobs", unknown)
    assert raised.value.returncode == NOT_FOUND


def test_cancel_changes_what_matches(mixed: list[str]) -> None:
    assert run("delayq_cancel", "--queue", "mail", "--dry-run") == "Would cancel 3.\n"
    assert read("delayq_cancel", "--queue", "mail", "--due-before", "90m", "--yes") == {"matched": 1, "changed": 1}
    assert run("delayq_cancel", "--all", "--yes") == "Cancelled 3.\n"
    assert run("delayq_cancel", "--all", "--yes") == "Cancelled 0.\n"
    assert jobs(state="failed").count() == 2


def test_cancel_takes_ids(mixed: list[str]) -> None:
    [ready] = jobs(state="ready")
    assert run("delayq_cancel", ready.id, "--yes") == "Cancelled 1.\n"
    with pytest.raises(CommandError, match="None to cancel") as raised:
        run("delayq_cancel", ready.id, "--yes")
    assert raised.value.returncode == NOT_FOUND
    with pytest.raises(CommandError, match="not found, or not scheduled or ready"):
        run("delayq_cancel", mixed[0], "--yes")


def test_requeue_retries_what_failed(mixed: list[str], delayq: DelayQ) -> None:
    assert run("delayq_requeue", mixed[0], "--yes") == "Retried 1.\n"
    assert read("delayq_requeue", "--error", "ValueError", "--spread", "10m", "--yes") == {"matched": 1, "changed": 1}
    handle = get_job(mixed[1])
    assert handle is not None
    assert handle.due is not None
    assert timedelta(minutes=4) < handle.due - delayq.now < timedelta(minutes=6)


def test_pause_and_resume(mixed: list[str], delayq: DelayQ) -> None:
    assert run("delayq_pause", "mail", "--dry-run") == "Would pause mail.\n"
    assert run("delayq_pause", "mail", "--until", "10m", "--dry-run") == "Would pause mail for 0:10:00.\n"
    moment = ("--until", "2150-01-31T08:00+01:00", "--dry-run")
    assert run("delayq_pause", "mail", *moment) == "Would pause mail until 2150-01-31T08:00:00+01:00.\n"
    planned = {"dry_run": True, "changed": 0, "queues": ["mail"], "until": "2150-01-31T07:00:00+00:00"}
    assert read("delayq_pause", "mail", *moment) == planned
    assert queue("mail").paused is None
    paused = {"changed": 2, "queues": ["mail", "other"]}
    assert read("delayq_pause", "mail", "other", "--until", "10m", "--yes") == paused
    assert "paused by" in run("delayq_stats")
    assert run("delayq_resume", "mail", "--dry-run") == "Would resume mail.\n"
    assert read("delayq_resume", "mail", "--dry-run") == {"dry_run": True, "changed": 0, "queues": ["mail"]}
    assert run("delayq_resume", "mail", "--yes") == "Resumed mail.\n"
    assert run("delayq_resume", "mail", "--yes") == "mail: not paused.\n"
    assert read("delayq_resume", "mail", "--yes") == {"changed": 0, "queues": []}
    assert queue("other").paused is not None
    delayq.advance(minutes=11, run=True)
    assert queue("other").paused is None


@pytest.mark.parametrize(
    "command",
    [("delayq_cancel", "--all"), ("delayq_requeue", "--all"), ("delayq_pause", "mail"), ("delayq_resume", "mail")],
)
def test_without_a_terminal_a_change_needs_yes(mixed: list[str], command: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match="add --yes to do it") as raised:
        run(*command)
    assert raised.value.returncode == NOT_CONFIRMED
    assert jobs().count() == 6
    assert queue("mail").paused is None


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("delayq_cancel", "--yes"), "Name jobs by their ids or by a filter, or add --all"),
        (("delayq_requeue", "--yes"), "Name jobs by their ids or by a filter, or add --all"),
        (("delayq_cancel", "--state", "failed"), "argument --state: invalid choice: 'failed'"),
        (("delayq_requeue", "--spread", "10"), "argument --spread: '10' is no time: use 10m"),
        (("delayq_requeue", "--all", "--spread", "0s", "--yes"), "argument --spread: '0s' is no time to spread over"),
        # Without --yes: it is refused before the question.
        (("delayq_requeue", "--all", "--spread", "3651d"), "spread must be longer than 0 and at most MAX_DELAY (3,650"),
        (("delayq_requeue", "--all", "--spread", "3651d", "--dry-run"), "at most MAX_DELAY (3,650 days)"),
        (
            ("delayq_pause", "mail", "--until", "soon"),
            "argument --until: 'soon' is no time: use 10m, 1h30m or 2d, or 2027-01-31T08:00 for a moment",
        ),
        (("delayq_pause", "mail", "--until", "2027-02-30T08:00"), "argument --until: '2027-02-30T08:00' is not in the"),
        # Without --yes: it is refused before the question.
        (("delayq_pause", "mail", "--until", "2001-01-01T00:00"), "until must be later than now"),
        (("delayq_pause", "mail", "--until", "0s", "--dry-run"), "until must be later than now"),
        (("delayq_jobs", "--limit", "-1"), "--limit must be 0"),
        (("delayq_jobs", "nonsense"), "There is no job 'nonsense': it has ended, or never existed, or the id is"),
        (
            ("delayq_jobs", "nonsense", "--state", "ready", "--due-before", "1h", "--count"),
            "are shown whole: leave out --due-before, --state, --count.",
        ),
        (("delayq_cancel", "nonsense", "--yes"), "'nonsense' is not the id of a job"),
        (("delayq_pause", "", "--yes"), "queue"),
        (("delayq_stats", "--watch", "never"), "argument --watch: 'never' is no time"),
        (("delayq_stats", "--watch", "0s"), "argument --watch: '0s' is out of range: use 500ms to 1d"),
        (("delayq_stats", "--watch=0"), "argument --watch: '0' is no time"),
        (("delayq_stats", "--watch", "499ms"), "argument --watch: '499ms' is out of range"),
        (("delayq_stats", "--watch", "25h"), "argument --watch: '25h' is out of range"),
    ],
)
def test_wrong_options_are_refused_with_the_cure(mixed: list[str], command: tuple[str, ...], text: str) -> None:
    with pytest.raises(CommandError) as raised:
        run(*command)
    assert text in str(raised.value)
    assert jobs().count() == 6


def test_stats_show_queues_jobs_and_processes(mixed: list[str]) -> None:
    facts = read("delayq_stats")
    assert (facts["scheduled"], facts["ready"], facts["running"], facts["failed"]) == (3, 1, 0, 2)
    assert facts["queues"]["mail"]["scheduled"] == 3
    assert facts["queues"]["other"]["ready"] == 1
    text = run("delayq_stats")
    assert "scheduled 3  ready 1  running 0  failed 2" in text
    assert [line.split()[0] for line in text.splitlines()[3:6]] == ["queue", "mail", "other"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("10m", 600), ("1h30m", 5_400), ("500ms", 0.5), ("1.5d", 129_600), ("2w1s", 1_209_601)]
)
def test_a_span_is_numbers_with_units(text: str, seconds: float) -> None:
    assert span(text).total_seconds() == seconds


@pytest.mark.parametrize("text", ["99999999999d", "9" * 400 + "s", "999999999d24h"])
@pytest.mark.parametrize(
    ("command", "option"),
    [
        (("delayq_jobs",), "--due-before"),
        (("delayq_cancel", "--yes"), "--due-before"),
        (("delayq_requeue", "--all", "--yes"), "--spread"),
        (("delayq_pause", "mail", "--yes"), "--until"),
        (("delayq_stats",), "--watch"),
    ],
)
def test_a_span_that_is_too_long_is_a_wrong_option(
    mixed: list[str], text: str, command: tuple[str, ...], option: str
) -> None:
    with pytest.raises(
        CommandError, match=f"argument {option}: '{text[:60]}.* is too long: a span is at most 9"
    ) as raised:
        run(*command, option, text)
    assert "\n" not in str(raised.value)
    assert jobs().count() == 6
    assert queue("mail").paused is None


@pytest.mark.parametrize("text", ["", "10", "m", "-5m", "10 m", "10x", "ten"])
def test_another_text_is_no_span(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="use 10m, 1h30m or 2d$"):
        span(text)


def test_a_moment_without_a_zone_is_in_the_zone_of_the_project(settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    found = time_or_span("2027-01-31T08:00")
    assert str(found) == "2027-01-31 08:00:00+01:00"
    assert str(time_or_span("2027-01-31T08:00Z")) == "2027-01-31 08:00:00+00:00"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("delayq_jobs", "nonsense"), NOT_FOUND),
        (("delayq_cancel", "nonsense", "--yes"), NOT_FOUND),
        (("delayq_run", "nonsense", "--yes"), NOT_FOUND),
        (("delayq_pause", "nowhere", "--yes"), NOT_FOUND),
        (("delayq_resume", "nowhere", "--yes"), NOT_FOUND),
        (("delayq_jobs", "--limit", "-1"), 2),
        (("delayq_jobs", "--queue", ""), 2),
        (("delayq_pause", "mail", "--until", "2001-01-01T00:00", "--yes"), 2),
        (("delayq_requeue", "--all", "--spread", "3651d"), 2),
    ],
)
def test_each_error_has_its_exit_code(
    mixed: list[str], delayq_settings: Any, command: tuple[str, ...], code: int
) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "QUEUES": {"default": {}, "mail": {}, "other": {}}}
    with pytest.raises(CommandError) as raised:
        run(*command)
    assert raised.value.returncode == code


def test_a_bug_is_a_traceback(mixed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Jobs) -> int:
        raise TypeError("a bug")

    monkeypatch.setattr(Jobs, "count", broken)
    with pytest.raises(TypeError, match="a bug"):
        run("delayq_cancel", "--all", "--yes")


def test_a_list_says_that_it_was_cut_only_if_it_was(mixed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    call_command("delayq_jobs", limit=6)
    assert "--limit 0 lists all" not in capsys.readouterr().err
    call_command("delayq_jobs", limit=5)
    assert "The first 5; --limit 0 lists all" in capsys.readouterr().err
