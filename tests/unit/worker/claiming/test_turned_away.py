"""Turned away: a claim is dropped only if its body, too, says that something may drop it."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from django_delayq.job.attempts import NO_ATTEMPTS
from django_delayq.job.job import Claim, Job, LimitUse, Occurrence
from django_delayq.worker.claiming.turned_away import turn_away

JOB = Job(raw_id=bytes(12), shard=0, task="shop.remind", queue="default")


def reply(job: Job | None) -> Any:
    """Return the reply of an exchange with one claim that the script would drop."""
    facts = {"lease": bytes(30), "shard": 0, "queue": "default", "rank": 1, "due_us": 1, "attempts": NO_ATTEMPTS}
    times = {"claimed_us": 1, "sent_at": 0.0, "received_at": 0.0}
    claim = Claim(**facts, **times, job=job, is_dropped=True)
    return SimpleNamespace(claims=[claim], paused_tasks=set())


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"limits": (LimitUse("api"),)}, "A limit (api) kept the job from beginning"),
        ({"occurrence": Occurrence("nightly", None)}, "Its schedule 'nightly' kept the job from beginning"),
    ],
)
def test_a_job_with_limits_or_a_schedule_is_dropped(changes: dict[str, Any], text: str) -> None:
    to_run, [(_, outcome)] = turn_away(reply(replace(JOB, **changes)))
    assert not to_run
    assert outcome.error.startswith(text)


@pytest.mark.parametrize("job", [JOB, None])
def test_a_damaged_record_drops_no_other_job(job: Job | None) -> None:
    to_run, others = turn_away(reply(job))
    assert len(to_run) == 1
    assert not others
