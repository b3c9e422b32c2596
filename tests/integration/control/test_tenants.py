"""queue().tenant(): counts, pause, resume and cancel the jobs of one tenant; and what enqueues say of tenants."""

from datetime import timedelta
from typing import Any

import pytest

from django_delayq import Throttle, current_job, delayed_task, enqueue_many, jobs, queue, tenant
from django_delayq.exceptions import TenantFull
from django_delayq.testing import DelayQ
from tests.sample_app import tasks

QUEUES = {"default": {}, "mail": {"fair": True, "weights": {"big": 3}}, "small": {"max_waiting": 2}}
seen: list[str | None] = []


@delayed_task(queue="mail", tenant=lambda account: account, name="tenants.by_account")
def by_account(account: str | None, number: int = 0) -> None:
    """Note the tenant of the job."""
    job = current_job()
    seen.append(job.tenant if job else None)


@delayed_task(queue="mail", tenant="fixed", name="tenants.fixed")
def fixed() -> None:
    """A task with one tenant."""


@pytest.fixture(params=[1, 3])
def settings_with_tenants(request: pytest.FixtureRequest, delayq_settings: Any, redis_url: str) -> None:
    """Queues with tenants, in one shard or in three."""
    delayq_settings.DELAYQ = {"REDIS": redis_url, "ON_COMMIT": False, "QUEUES": QUEUES, "SHARDS": request.param}
    seen.clear()


def waiting(name: str, of: str = "mail") -> int:
    """Return how many jobs of a tenant wait."""
    return queue(of).tenant(name).counts()["waiting"]


@pytest.mark.usefixtures("settings_with_tenants")
def test_the_call_comes_before_the_task_and_the_task_before_the_block() -> None:
    with tenant("of the block"):
        by_account.enqueue("acme")
        by_account.enqueue(None)
        fixed.enqueue()
        fixed.using(tenant="of the call").enqueue()
        by_account.using(tenant="of the call").enqueue("acme")
        tasks.noop.using(queue="mail").enqueue()
        with tenant(None):
            tasks.noop.using(queue="mail").enqueue()
    assert [waiting(name) for name in ("acme", "of the block", "fixed", "of the call")] == [1, 2, 1, 2]


@pytest.mark.usefixtures("settings_with_tenants")
def test_counts_are_those_of_the_jobs_that_wait() -> None:
    acme = queue("mail").tenant("acme")
    assert acme.counts() == {"waiting": 0, "oldest": None, "paused": False}
    by_account.after(hours=1).enqueue("acme")
    assert acme.counts() == {"waiting": 1, "oldest": None, "paused": False}
    first = by_account.enqueue("acme")
    by_account.enqueue("acme")
    by_account.enqueue("other")
    counts = acme.counts()
    assert counts["waiting"] == 3
    assert counts["oldest"] is not None
    assert abs(counts["oldest"] - first.due) < timedelta(milliseconds=2)
    assert sorted((each.name, found["waiting"]) for each, found in queue("mail").tenants()) == [
        ("acme", 3),
        ("other", 1),
    ]


@pytest.mark.usefixtures("settings_with_tenants")
def test_a_paused_tenant_waits_and_the_others_pass_it(delayq: DelayQ) -> None:
    acme = queue("mail").tenant("acme")
    by_account.enqueue("acme")
    assert acme.pause(by="ann")
    assert not acme.pause(by="bob")
    paused = acme.paused
    assert paused is not None
    assert paused.by == "ann"
    by_account.enqueue("acme")
    by_account.enqueue("other")
    delayq.run_due()
    assert seen == ["other"]
    assert acme.counts()["paused"]
    assert queue("mail").tenant("without jobs").pause()
    assert sorted((each.name, found["waiting"], found["paused"]) for each, found in queue("mail").tenants()) == [
        ("acme", 2, True),
        ("without jobs", 0, True),
    ]
    assert acme.resume()
    assert not acme.resume()
    delayq.run_due()
    assert seen == ["other", "acme", "acme"]


@pytest.mark.usefixtures("settings_with_tenants")
def test_a_tenant_of_a_queue_that_is_not_fair_cannot_be_paused() -> None:
    with pytest.raises(ValueError, match="queue 'default' is not fair, so a tenant of it cannot be paused"):
        queue("default").tenant("acme").pause()
    with pytest.raises(TypeError, match="by must be a text"):
        queue("mail").tenant("acme").pause(by="")


@pytest.mark.usefixtures("settings_with_tenants")
def test_all_that_waits_of_a_tenant_is_cancelled_and_nothing_else() -> None:
    enqueue_many(by_account.job("acme", number) for number in range(300))
    enqueue_many(by_account.after(hours=1).job("acme", number) for number in range(3))
    by_account.enqueue("other")
    by_account.using(queue="default").enqueue("acme")
    reports: list[tuple[int, int]] = []
    assert queue("mail").tenant("acme").cancel(on_progress=lambda *report: reports.append(report)) == 303
    assert reports[-1] == (303, 303)
    assert len(reports) > 1
    assert (waiting("acme"), waiting("other"), waiting("acme", of="default")) == (0, 1, 1)


@pytest.mark.usefixtures("settings_with_tenants")
def test_no_more_jobs_of_a_tenant_wait_than_may() -> None:
    task = by_account.using(queue="small")
    task.enqueue("acme")
    task.after(hours=1).enqueue("acme")
    with pytest.raises(TenantFull, match="tenant 'acme' has 2 jobs that wait in queue 'small'") as caught:
        task.enqueue("acme")
    assert (caught.value.waiting, caught.value.most) == (2, 2)
    assert caught.value.refused.state == "unsent"
    task.enqueue("other")
    task.enqueue(None)
    task.using(tenant=None).enqueue(None)
    with pytest.raises(TenantFull) as caught:
        enqueue_many([task.job("third", number) for number in range(3)])
    assert (caught.value.index, caught.value.accepted, caught.value.waiting) == (2, 0, 0)
    assert waiting("third", of="small") == 0
    assert queue("small").tenant("acme").cancel() == 2
    task.enqueue("acme")


# Jobs of other shards are in other batches.
@pytest.mark.usefixtures("settings_with_tenants")
@pytest.mark.parametrize("settings_with_tenants", [1], indirect=True)
@pytest.mark.parametrize("unique", ["keep", "replace", Throttle(60)])
def test_the_error_names_all_refused_jobs_of_all_full_tenants(unique: Any) -> None:
    task = by_account.using(queue="small", unique=unique)
    calls = [("acme", "a"), ("other", "a"), ("acme", "b"), ("acme", "c"), ("other", "b"), ("acme", "c"), ("other", "c")]
    jobs = [task.using(key=key).job(name) for name, key in calls]
    with pytest.raises(TenantFull) as caught:
        enqueue_many(jobs)
    error, [other] = caught.value, caught.value.others
    assert (error.index, error.indexes, error.all_refused) == (3, [3, 5], [jobs[3], jobs[5]])
    assert (other.index, other.indexes, other.all_refused) == (6, [6], [jobs[6]])
    assert error.refused is jobs[3]
    assert "'acme'" in str(error)
    assert "'other'" in str(other)
    assert waiting("acme", of="small") == 0
    enqueue_many([job for job in jobs if job not in (*error.all_refused, *other.all_refused)])
    assert (waiting("acme", of="small"), waiting("other", of="small")) == (2, 2)


@pytest.mark.usefixtures("settings_with_tenants")
@pytest.mark.parametrize("unique", ["keep", "replace"])
def test_a_job_with_a_key_counts_too_but_not_one_that_replaces_it(unique: Any) -> None:
    task = by_account.using(queue="small", unique=unique)
    task.using(key="a").enqueue("acme")
    task.using(key="b").enqueue("acme")
    assert not task.using(key="b").enqueue("acme", 2).created
    with pytest.raises(TenantFull):
        task.using(key="c").enqueue("acme")
    assert waiting("acme", of="small") == 2


@pytest.mark.usefixtures("settings_with_tenants")
def test_a_job_that_replaces_one_of_another_queue_counts() -> None:
    task = by_account.using(unique="replace", key="a")
    task.enqueue("acme")
    full = by_account.using(queue="small")
    full.enqueue("acme")
    full.enqueue("acme")
    with pytest.raises(TenantFull):
        task.using(queue="small").enqueue("acme")
    assert (waiting("acme", of="small"), waiting("acme", of="mail")) == (2, 1)
    queue("small").tenant("acme").cancel()
    assert not task.using(queue="small").enqueue("acme").created
    assert (waiting("acme", of="small"), waiting("acme", of="mail")) == (1, 0)


@pytest.mark.usefixtures("settings_with_tenants")
def test_a_key_of_a_tenant_is_found() -> None:
    task = by_account.using(key="k")
    job, other = task.enqueue("acme"), task.enqueue("other")
    assert other.created
    with tenant("acme"):
        found = by_account.get_job(key="k")
    assert found is not None
    assert found.id == job.id
    for name, expected in (("acme", job), ("other", other)):
        found = by_account.get_job(key="k", tenant=name)
        assert found is not None
        assert found.id == expected.id
    assert by_account.get_job(key="other", tenant="acme") is None
    assert by_account.get_job(key="k") is None


@pytest.mark.parametrize("name", ["", "x" * 201, 7])
def test_a_tenant_that_is_no_name_is_refused_before_anything_is_stored(name: Any, delayq: DelayQ) -> None:
    with pytest.raises(ValueError, match="tenant must be "):
        tasks.noop.using(tenant=name)
    with pytest.raises(ValueError, match="the tenant of tenants.by_account must be "):
        by_account.using(queue="default").enqueue(name)
    with pytest.raises(ValueError, match="tenant must be "), tenant(name):
        pass
    with pytest.raises(ValueError, match="tenant must be "):
        queue("default").tenant(name)
    assert not list(jobs())


def test_a_function_that_does_not_fit_the_task_is_refused() -> None:
    with pytest.raises(ValueError, match="tenant is a function of 'acount', which is no parameter of the task"):
        delayed_task(tenant=lambda acount: acount, name="tenants.wrong")(by_account.func)
    with pytest.raises(TypeError, match="tenant must be text, or a function"):
        delayed_task(tenant=7, name="tenants.wrong")(by_account.func)  # type: ignore[call-overload]
