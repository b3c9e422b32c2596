"""Forwarder pool: jobs go to another system, and are done once it has accepted them."""

import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from redis import Redis

from django_delayq.job.retry import RetryPolicy
from tests.sample_app import tasks
from tests.subprocesses import Processes


def test_jobs_go_to_the_stream_when_they_are_due_and_are_done(processes: Processes, client: Redis) -> None:
    jobs = [tasks.record.using(delay=0.05, priority=3).enqueue(number, kind="x") for number in range(20)]
    processes.dispatcher()
    processes.worker("--pool=forwarder", "--forward-to=stream")
    processes.until_gone(jobs)
    entries: list[Any] = client.xrange(processes.keys("forwarded"))
    text = {fields[b"id"].decode(): json.loads(fields[b"job"]) for _, fields in entries}
    assert set(text) == {job.id for job in jobs}
    first = text[jobs[0].id]
    assert (first["task"], first["queue"], first["args"], first["kwargs"], first["attempt"], first["priority"]) == (
        *("tests.sample_app.tasks.record", "default", [0], {"kind": "x"}, 1, 3),
    )
    assert processes.events() == []


def test_a_job_that_the_other_system_refuses_is_retried_and_then_dead(processes: Processes) -> None:
    refused = tasks.record.using(retry=RetryPolicy(max_attempts=2, base=0.01)).enqueue("refuse")
    taken = tasks.record.enqueue("take")
    processes.dispatcher()
    processes.worker("--pool=forwarder", "--forward-to=tests.sample_app.forward_target.accept")
    processes.until_state(refused, "dead")
    processes.until_gone([taken])
    assert [event["args"] for event in processes.events("accepted")] == [["take"]]
    assert [event["attempt"] for event in processes.events("refused")] == [1, 2]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--pool=forwarder"], "go together"),
        (["--forward-to=stream"], "go together"),
        (["--pool=forwarder", "--forward-to=nowhere.at.all"], "cannot be imported"),
        (["--pool=forwarder", "--forward-to=tests.sample_app.forward_target.NO_FUNCTION"], "is not a function"),
    ],
)
def test_options_that_do_not_go_together_are_refused(delayq_settings: object, options: list[str], text: str) -> None:
    with pytest.raises(CommandError, match=text):
        call_command("run_worker", *options)
