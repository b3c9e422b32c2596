"""Shards: a schedule is in the shard of its name, and so are its jobs."""

from datetime import timedelta
from typing import Any

import pytest

from django_delayq import get_job, get_store
from django_delayq.exceptions import InvalidSchedule, ShardsChanged
from django_delayq.job.ids import from_text
from django_delayq.job.job import State
from django_delayq.testing import DelayQ
from tests.sample_app.tasks import noop

HOUR = timedelta(hours=1)
NAMES = [f"digest:{number}" for number in range(300)]


@pytest.fixture
def three_shards(delayq: DelayQ, settings: Any) -> None:
    """Use three shards, and a limit."""
    settings.DELAYQ = {**settings.DELAYQ, "SHARDS": 3, "LIMITS": {"api": {"max_running": 1}}}


def shard_of_job(job_id: str) -> int:
    place = from_text(job_id)
    assert place
    return place[1]


@pytest.mark.usefixtures("three_shards")
def test_names_are_spread_and_found_again(delayq: DelayQ) -> None:
    assert noop.schedules.set_many({"name": name, "every": HOUR} for name in NAMES) == 300
    counts = [get_store().schedules(shard).count() for shard in range(3)]
    assert sum(counts) == 300 and min(counts) > 60
    assert {each.name for each in noop.schedules.iter()} == set(NAMES)
    assert all(noop.schedules.get(name) for name in NAMES)
    ran = delayq.advance(hours=1, run=True)
    assert {run.schedule for run in ran} == set(NAMES)
    assert {shard_of_job(run.id) for run in ran} == {0, 1, 2}
    assert noop.schedules.delete(*NAMES, "other") == 300
    assert list(noop.schedules.iter()) == [] and delayq.enqueued == []


@pytest.mark.usefixtures("three_shards")
def test_jobs_are_in_the_shard_of_their_schedule(delayq: DelayQ) -> None:
    # A job of its own would be in the shard of its tenant.
    noop.using(tenant="acme", store_result=True).schedules.set_many({"name": name, "every": HOUR} for name in NAMES)
    delayq.run_due()
    for each in noop.schedules.iter():
        assert each.job_id and each._stored.shard == shard_of_job(each.job_id)
        now = each.run_now()
        assert shard_of_job(now.id) == each._stored.shard
    delayq.run_due()
    found = get_job(now.id)
    assert found and found.state is State.DONE


@pytest.mark.usefixtures("three_shards")
def test_pause_and_resume_find_their_shard() -> None:
    noop.schedules.set_many({"name": name, "every": HOUR} for name in NAMES[:9])
    assert all(noop.schedules.pause(name) for name in NAMES[:9])
    assert all(each.is_paused for each in noop.schedules.iter())
    assert all(each.resume() for each in noop.schedules.iter())


@pytest.mark.usefixtures("three_shards")
def test_limits_are_refused_with_the_reason() -> None:
    with pytest.raises(InvalidSchedule, match="'a' have limits; with SHARDS > 1 these are kept in the shard of their"):
        noop.using(limit="api").schedules.set("a", every=HOUR)
    assert noop.schedules.get("a") is None


def test_limits_are_accepted_with_one_shard(delayq: DelayQ, settings: Any) -> None:
    settings.DELAYQ = {**settings.DELAYQ, "LIMITS": {"api": {"max_running": 1}}}
    noop.using(limit="api").schedules.set("a", every=HOUR)
    assert len(delayq.advance(hours=2, run=True)) == 2


@pytest.mark.parametrize("shards", [2, 4])
@pytest.mark.usefixtures("three_shards")
def test_another_number_of_shards_is_refused_while_there_are_schedules(settings: Any, shards: int) -> None:
    noop.schedules.set_many({"name": name, "every": HOUR} for name in NAMES)
    settings.DELAYQ = {**settings.DELAYQ, "SHARDS": shards}
    with pytest.raises(ShardsChanged, match=r"and \d+ recurring schedules that were set at run time"):
        noop.schedules.set("other", every=HOUR)
    settings.DELAYQ = {**settings.DELAYQ, "SHARDS": 3}
    noop.schedules.delete(*NAMES)
    settings.DELAYQ = {**settings.DELAYQ, "SHARDS": shards}
    noop.schedules.set("other", every=HOUR)


def test_the_first_schedule_stores_the_number_of_shards(delayq: DelayQ, settings: Any) -> None:
    noop.schedules.set("a", every=HOUR)
    settings.DELAYQ = {**settings.DELAYQ, "SHARDS": 2}
    with pytest.raises(ShardsChanged):
        get_store().check_shards()
