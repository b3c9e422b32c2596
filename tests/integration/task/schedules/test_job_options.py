"""The jobs of a schedule have the options that its task had when it was set."""

from datetime import timedelta
from typing import Any

import pytest

from django_delayq import JobHandle, RetryPolicy, current_job, delayed_task, get_job, tenant
from django_delayq.exceptions import TenantFull
from django_delayq.job.job import LimitUse, State
from django_delayq.job.outcome import OutcomeKind
from django_delayq.signals import job_enqueued
from django_delayq.testing import DelayQ
from tests.integration.middleware import classes
from tests.integration.task.schedules.conftest import Worker
from tests.sample_app.tasks import noop
from tests.shard_apis import NINE
from tests.testing_helpers.tasks import charge

HOUR = timedelta(hours=1)


def test_queue_priority_retry_and_time_limits_travel_in_the_jobs(delayq: DelayQ, worker: Worker) -> None:
    retry = RetryPolicy(max_attempts=7, delays=[1, 2])
    noop.using(queue="reports", priority=9, retry=retry, timeout=5, hard_timeout=60, store_result=120).schedules.set(
        "a", every=HOUR
    )
    delayq.run_due()
    [waiting] = delayq.enqueued
    found = get_job(waiting.id)
    assert found and found.job
    job = found.job
    assert (job.queue, job.priority, job.retry) == ("reports", 9, retry)
    assert (job.timeout_us, job.hard_timeout_us, job.result_ttl_us) == (5_000_000, 60_000_000, 120_000_000)
    assert (waiting.due, job.key) == (NINE + HOUR, None)


def test_options_of_a_later_deploy_count_once_the_schedule_is_set_again(delayq: DelayQ) -> None:
    noop.using(queue="before").schedules.set("a", every=HOUR)
    noop.using(queue="after").schedules.set("b", every=HOUR)
    assert {(run.schedule, run.queue) for run in delayq.advance(hours=1, run=True)} == {("a", "before"), ("b", "after")}
    noop.using(queue="after").schedules.set("a", every=HOUR)
    assert [run.queue for run in delayq.advance(hours=1, run=True)] == ["after", "after"]


def test_a_retry_policy_counts_for_each_job(delayq: DelayQ) -> None:
    charge.schedules.set("a", every=HOUR, args=[5], kwargs={"fails": 2})
    ran = delayq.advance(hours=2, minutes=1, run=True, errors="retry")
    assert [(run.attempt, run.ending) for run in ran] == 2 * [
        (1, OutcomeKind.FAILED),
        (2, OutcomeKind.FAILED),
        (3, OutcomeKind.SUCCEEDED),
    ]
    found = charge.schedules.get("a")
    assert found and [run.outcome for run in found.runs] == ["done", "done"]


def test_results_are_kept(delayq: DelayQ) -> None:
    noop.using(store_result=True).schedules.set("a", every=HOUR)
    [ran] = delayq.advance(hours=1, run=True)
    found = get_job(ran.id)
    assert found and (found.state, found.result) == (State.DONE, None)


def test_jobs_have_the_tenant_of_the_call_and_no_key(delayq: DelayQ, worker: Worker) -> None:
    with tenant("acme"):
        noop.using(key="k").schedules.set("a", every=HOUR)
    noop.using(tenant="other").schedules.set("b", every=HOUR)
    delayq.run_due()
    holder = noop.using(key="k", tenant="acme").enqueue()
    assert holder.created
    jobs = {each.name: get_job(each.job_id) for each in noop.schedules.iter()}
    assert {name: (each and each.job and (each.job.tenant, each.job.key)) for name, each in jobs.items()} == {
        "a": ("acme", None),
        "b": ("other", None),
    }


def test_no_job_is_refused_because_its_tenant_is_full(delayq: DelayQ, settings: Any) -> None:
    settings.DELAYQ = {**settings.DELAYQ, "QUEUES": {noop.queue: {"max_waiting": 1}}}
    for name in ("a", "b"):
        noop.using(tenant="acme").schedules.set(name, every=HOUR)
    delayq.run_due()
    assert len(delayq.enqueued) == 2
    with pytest.raises(TenantFull):
        noop.using(tenant="acme").enqueue()


def test_the_dispatcher_sends_no_signal_of_the_enqueue(delayq: DelayQ) -> None:
    heard: list[str] = []

    def receiver(job: JobHandle, **_: Any) -> None:
        heard.append(job.id)

    job_enqueued.connect(receiver)
    try:
        noop.schedules.set("a", every=HOUR)
        delayq.run_due()
        assert (len(delayq.enqueued), heard) == (1, [])
        [schedule] = noop.schedules.iter()
        assert heard == [schedule.run_now().id]
    finally:
        job_enqueued.disconnect(receiver)


@pytest.mark.parametrize("unique", ["reject", "replace"])
def test_what_a_task_does_about_its_key_is_no_hindrance(delayq: DelayQ, registered: Any, unique: Any) -> None:
    registered()
    task = delayed_task(name="shop.keyed", key="k", unique=unique)(noop.func)
    task.schedules.set("a", every=HOUR)
    held = task.after(days=1).enqueue()
    assert len(delayq.advance(hours=3, run=True)) == 3
    assert held.refresh().state is State.SCHEDULED


def test_limits_count_and_drop_jobs(delayq: DelayQ, settings: Any, worker: Worker) -> None:
    settings.DELAYQ = {**settings.DELAYQ, "LIMITS": {"api": {"max_running": 1}}}
    noop.using(limit=("api", "acme"), on_limit="drop", cost=2).schedules.set("a", every=HOUR)
    [first] = delayq.advance(hours=1, run=True)
    assert first.ending is OutcomeKind.SUCCEEDED
    delayq.run_due()
    delayq.advance(minutes=10, run=True)
    [waiting] = delayq.enqueued
    found = get_job(waiting.id)
    assert found and found.job and found.job.limits == (LimitUse("api", "acme"),)
    assert delayq.advance(minutes=45, run=True) == []
    blocking = noop.using(limit=("api", "acme")).enqueue()
    [running] = worker.begin()
    assert running.id == blocking.id
    [dropped] = delayq.advance(minutes=5, run=True)
    assert dropped.ending is OutcomeKind.DROPPED
    handle = noop.schedules.get("a")
    assert handle and [run.outcome for run in handle.runs] == ["skipped", "done"]


def test_expires_counts_from_each_occurrence(delayq: DelayQ) -> None:
    noop.using(expires=60, on_expiry="dead").schedules.set("a", every=HOUR, catch_up="last")
    delayq.run_due()
    assert [job.expires for job in delayq.enqueued] == [NINE + HOUR + timedelta(minutes=1)]
    delayq.advance(hours=1, minutes=2)
    [ran] = delayq.run_due(errors="retry")
    assert ran.ending is OutcomeKind.EXPIRED and ran.dead
    assert [run.ending for run in delayq.advance(hours=1, run=True)] == [OutcomeKind.SUCCEEDED]


@pytest.mark.parametrize(("expires", "window", "minutes"), [(60, 600, 1), (600, 60, 1), (None, 120, 2), (60, None, 1)])
def test_the_earlier_of_expires_and_the_window_of_catch_up_counts(
    delayq: DelayQ, expires: Any, window: Any, minutes: int
) -> None:
    noop.using(expires=expires).schedules.set("a", every=HOUR, catch_up="none", window=window)
    delayq.run_due()
    assert [job.expires for job in delayq.enqueued] == [NINE + HOUR + timedelta(minutes=minutes)]


def test_middlewares_of_the_enqueue_run_when_a_schedule_is_set(delayq: DelayQ, settings: Any) -> None:
    settings.DELAYQ = {**settings.DELAYQ, "MIDDLEWARE": [f"{classes.__name__}.Around"]}
    classes.seen.clear()
    token = classes.request_id.set("4711")
    noop.schedules.set("a", every=HOUR)
    classes.request_id.reset(token)
    assert classes.seen == ["Around enqueue", "Around enqueued"]
    delayq.run_due()
    assert [job.context for job in delayq.enqueued] == [{"request_id": "4711"}]
    assert len(delayq.advance(hours=2, run=True)) == 2
    assert classes.seen[2:] == ["Around run", "Around ran"] * 2
    found = noop.schedules.get("a")
    assert found and found.run_now().job.context == {"request_id": "4711"}  # type: ignore[union-attr]
    assert classes.seen.count("Around enqueue") == 1


def test_a_middleware_that_refuses_stores_nothing(delayq: DelayQ, settings: Any) -> None:
    settings.DELAYQ = {**settings.DELAYQ, "MIDDLEWARE": [f"{classes.__name__}.Refusing"]}
    classes.Refusing.at_enqueue = ValueError("not today")
    try:
        with pytest.raises(ValueError, match="not today"):
            noop.schedules.set("a", every=HOUR)
    finally:
        classes.Refusing.at_enqueue = None
    assert noop.schedules.get("a") is None


def test_a_task_reads_its_job(delayq: DelayQ, registered: Any) -> None:
    registered()
    seen = []

    def run() -> None:
        job = current_job()
        assert job
        seen.append((job.due, job.queue, job.tenant, job.key, job.attempt))

    run.__qualname__ = "run"
    task = delayed_task(name="shop.run", queue="q", tenant="acme")(run)
    task.schedules.set("a", every=HOUR, jitter=600)
    delayq.advance(hours=2, run=True)
    late = [due - NINE - number * HOUR for number, (due, *_) in enumerate(seen, 1)]
    assert len(set(late)) == 1 and timedelta(0) < late[0] < timedelta(minutes=10)
    assert {facts[1:] for facts in seen} == {("q", "acme", None, 1)}
