"""Signals and log sentences: receivers cannot break a job, users cannot forge a line."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.dispatch import Signal

from django_delayq.job.ids import next_id
from django_delayq.job.job import Job
from django_delayq.job.outcome import Action, Decision, Outcome, OutcomeKind
from django_delayq.signals import (
    announce,
    job_dead_lettered,
    job_enqueued,
    job_finished,
    job_started,
    last_line,
)

#: What a text would need to begin a line of its own, on a terminal or in a file.
FORGERIES = ["\n", "\r\n", "\r", "\x0b", "\x0c", "\x1b[2K", "\x85", "\u2028", "\u2029", "\0"]
EVIL = "".join(f"{sep}2030-01-01 ERROR Job forged" for sep in FORGERIES)

EVIL_JOB = Job(raw_id=next_id(), shard=0, task=f"task{EVIL}", queue=f"queue{EVIL}", args=["secret"])
FAILED = Outcome(kind=OutcomeKind.FAILED, error=f"Traceback …\nValueError: {EVIL}")
LIVES: list[tuple[Signal, dict[str, Any]]] = [
    (job_enqueued, {"job": EVIL_JOB}),
    (job_started, {"job": EVIL_JOB, "attempt": 1, "recovered": False}),
    (
        job_finished,
        {
            "job_id": EVIL_JOB.id,
            "job": EVIL_JOB,
            "attempt": 1,
            "outcome": Outcome(kind=OutcomeKind.SUCCEEDED),
            "decision": Decision(action=Action.ACKNOWLEDGE),
        },
    ),
    (
        job_finished,
        {
            "job_id": EVIL_JOB.id,
            "job": EVIL_JOB,
            "attempt": 2,
            "outcome": FAILED,
            "decision": Decision(action=Action.RETRY, delay_us=5),
        },
    ),
    (
        job_finished,
        {
            "job_id": EVIL_JOB.id,
            "job": None,
            "attempt": 1,
            "outcome": Outcome(kind=OutcomeKind.NEWER, error="stored in format 2"),
            "decision": Decision(action=Action.RETRY, delay_us=5),
        },
    ),
    (
        job_dead_lettered,
        {"job_id": EVIL_JOB.id, "job": EVIL_JOB, "attempt": 3, "reason": f"failed\n{FAILED.error}"},
    ),
    (job_dead_lettered, {"job_id": EVIL_JOB.id, "job": None, "attempt": 3, "reason": ""}),
]


@pytest.fixture
def connect() -> Iterator[Callable[..., None]]:
    """Connect receivers to job_enqueued until the end of the test: `connect(receiver, sender=task)`."""
    with ExitStack() as stack:

        def connect(receiver: Callable[..., None], *, sender: object = None) -> None:
            job_enqueued.connect(receiver, sender=sender)
            stack.callback(job_enqueued.disconnect, receiver, sender=sender)

        yield connect


@pytest.mark.parametrize(("signal", "facts"), LIVES)
def test_no_text_of_a_user_can_forge_a_log_line(
    signal: Signal, facts: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="django_delayq")
    announce(signal, None, **facts)
    [record] = caplog.records
    assert record.name == "django_delayq"
    message = record.getMessage()
    assert len(message.splitlines()) == 1 and message.isprintable()
    assert EVIL_JOB.id in message
    assert "secret" not in message


def test_log_sentences_name_task_queue_and_attempt(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="django_delayq")
    job = Job(raw_id=next_id(), shard=0, task="shop.remind", queue="mail")
    outcome = Outcome(kind=OutcomeKind.FAILED, error="Traceback\n  File\nValueError: no money")
    facts = {"job_id": job.id, "job": job, "attempt": 2}
    announce(job_finished, None, **facts, outcome=outcome, decision=Decision(action=Action.RETRY, delay_us=1_500_000))
    announce(job_dead_lettered, None, **facts, reason=outcome.error)
    for record in caplog.records:
        for word in (job.id, "shop.remind", "mail", "attempt 2", "ValueError: no money"):
            assert word in record.getMessage()
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]


def test_a_dead_letter_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    facts = {"job_id": EVIL_JOB.id, "job": EVIL_JOB, "attempt": 1}
    announce(job_finished, None, **facts, outcome=FAILED, decision=Decision(action=Action.DEAD_LETTER))
    announce(job_dead_lettered, None, **facts, reason="x")
    assert len(caplog.records) == 1


def test_an_exception_of_a_receiver_is_logged_and_the_others_are_called(
    connect: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    received: list[dict[str, Any]] = []

    def broken(**_: Any) -> None:
        raise RuntimeError("receiver broke")

    def sound(**facts: Any) -> None:
        received.append(facts)

    connect(broken)
    connect(sound)
    announce(job_enqueued, "sender", job=EVIL_JOB)
    assert [(facts["sender"], facts["job"]) for facts in received] == [("sender", EVIL_JOB)]
    records = [record for record in caplog.records if record.name == "django_delayq"]
    assert len(records) == 1 and records[0].levelname == "ERROR" and records[0].exc_info
    assert "receiver broke" in caplog.text


def test_a_receiver_can_connect_to_one_task_only(connect: Callable[..., None]) -> None:
    received: list[Any] = []
    task, other = object(), object()

    def receiver(sender: Any, **_: Any) -> None:
        received.append(sender)

    connect(receiver, sender=task)
    announce(job_enqueued, other, job=EVIL_JOB)
    announce(job_enqueued, task, job=EVIL_JOB)
    assert received == [task]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "''"),
        ("\n \n", "''"),
        ("one", "'one'"),
        ("one\ntwo\n", "'two'"),
        ("x" * 400, "'" + "x" * 400 + "'"),
        ("x" * 1_000, "'" + "x" * 200 + "…" + "x" * 199 + "'"),
    ],
)
def test_the_last_line_of_an_error_is_quoted_and_shortened(text: str, line: str) -> None:
    assert last_line(text) == line
