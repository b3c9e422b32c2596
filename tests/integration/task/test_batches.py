"""Batches: many jobs in one call, with their round trips, progress, held keys, outages and shards."""

from collections.abc import Generator, Iterator
from typing import Any

import pytest
from django.db import transaction
from redis import Redis

from django_delayq import enqueue_many
from django_delayq.exceptions import DelayQError, KeyHeld, StoreUnavailable
from django_delayq.job.job import State
from django_delayq.task.handle import JobHandle
from django_delayq.testing.local_redis import LocalRedisServer
from tests.inspection import inspection
from tests.integration.task.stored import HOUR, due_of, now, stored
from tests.sample_app.tasks import noop, record

pytestmark = pytest.mark.usefixtures("delayq_settings")


def scripts_run(client: Redis) -> int:
    """Return how many script calls the server has seen."""
    found = client.info("commandstats")
    return sum(found.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))


@pytest.fixture
def counted(client: Redis) -> Iterator[Redis]:
    """The client of a server that knows the scripts and has counted none yet."""
    noop.enqueue()
    # Several jobs are another script.
    noop.enqueue_many([(1,), (2,)])
    client.flushdb()
    client.config_resetstat()
    yield client


def test_five_hundred_jobs_are_two_round_trips(counted: Redis) -> None:
    handles = noop.after(hours=1).enqueue_many([(number,) for number in range(500)])
    assert isinstance(handles, list) and len({handle.id for handle in handles}) == 500
    assert scripts_run(counted) == 2
    assert {handle.state for handle in handles} == {State.SCHEDULED}
    assert stored(handles[499]).args == [499]
    assert inspection().counts().scheduled == {"default": 500}


def test_a_batch_ends_at_a_megabyte(counted: Redis) -> None:
    noop.enqueue_many([("x" * 200_000,) for _ in range(12)])
    assert scripts_run(counted) == 3


def test_progress_is_reported_after_each_megabyte() -> None:
    reports: list[int] = []
    assert noop.enqueue_many((("x" * 200_000,) for _ in range(12)), on_progress=reports.append) == 12
    assert reports == [5, 10, 12]


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_begins_while_jobs_are_made_is_refused() -> None:
    def arguments() -> Generator[tuple[int], None, None]:
        yield from ((number,) for number in range(250))
        with transaction.atomic():
            yield from ((number,) for number in range(250))

    made = arguments()
    with pytest.raises(DelayQError, match="in a transaction") as caught:
        noop.enqueue_many(made, on_progress=lambda accepted: None)
    made.close()
    assert caught.value.__notes__ == ["enqueue_many() had accepted 250 jobs by then."]
    assert inspection().counts().ready == {"default": 250}


def test_a_job_that_is_given_twice_is_sent_once() -> None:
    first, *others = jobs = [noop.after(number).job(number) for number in range(300)]
    sent = enqueue_many([*jobs, first])
    assert isinstance(sent, list) and sent == [*jobs, first]
    due = [job.due for job in jobs]
    assert due == sorted(moment for moment in due if moment) and {job.state for job in others} == {State.SCHEDULED}
    with pytest.raises(TypeError, match=f"{first.id} was sent or cancelled"):
        enqueue_many([first])


def test_one_call_enqueues_any_tasks_at_any_times(counted: Redis) -> None:
    moment = now() + HOUR
    jobs = [noop.at(moment).job(3), record.after(60).job(x=7), record.using(queue="mail").job()]
    assert [job.state for job in jobs] == [State.UNSENT] * 3 and counted.dbsize() == 0
    handles = enqueue_many(jobs)
    assert handles == jobs and scripts_run(counted) == 1
    assert [job.refresh().state for job in jobs] == [State.SCHEDULED, State.SCHEDULED, State.READY]
    assert due_of(jobs[0]) == moment and stored(jobs[1]).kwargs == {"x": 7} and stored(jobs[2]).queue == "mail"


def test_enqueueing_no_jobs_sends_nothing(counted: Redis) -> None:
    assert enqueue_many([]) == [] and noop.enqueue_many([]) == []
    assert noop.enqueue_many([], on_progress=lambda accepted: None) == 0
    assert scripts_run(counted) == 0


def test_progress_is_reported_per_batch_while_the_next_is_made() -> None:
    made, reports = [0], []

    def arguments() -> Iterator[tuple[int]]:
        for number in range(700):
            made[0] += 1
            yield (number,)

    def progress(accepted: int) -> None:
        reports.append((accepted, made[0]))

    assert noop.enqueue_many(arguments(), on_progress=progress) == 700
    # The reply to the first batch is read at once.
    assert reports == [(250, 250), (500, 700), (700, 700)]


def test_a_held_key_in_a_batch_returns_its_holder() -> None:
    holder = noop.using(key="k").enqueue(0)
    handles = enqueue_many([noop.job(1), noop.using(key="k").job(2), noop.using(key="new").job(3)])
    assert isinstance(handles, list)
    assert [handle.created for handle in handles] == [True, False, True]
    assert handles[1].id == holder.id


def test_a_refused_key_refuses_its_batch_and_the_error_counts_accepted_jobs(client: Redis) -> None:
    holder = noop.using(key="k").after(60).enqueue()
    jobs = [*(noop.job(number) for number in range(300)), noop.using(key="k", unique="reject").job()]
    with pytest.raises(KeyHeld, match="'k'") as caught:
        enqueue_many(jobs)
    assert (caught.value.accepted, caught.value.holder) == (250, holder.id)
    assert inspection().counts().ready == {"default": 250}
    assert [job.state for job in jobs[250:]] == [State.UNSENT] * 51


@pytest.mark.parametrize("progress", [False, True])
def test_the_error_of_an_outage_counts_accepted_jobs_and_can_resend_the_rest(
    progress: bool, start_redis: Any, delayq_settings: Any
) -> None:
    server: LocalRedisServer = start_redis(options={"appendonly": "yes", "appendfsync": "always"})
    delayq_settings.DELAYQ = {"REDIS": server.url}
    made: list[JobHandle] = []

    def jobs() -> Iterator[JobHandle]:
        for number in range(600):
            if number == 350 and progress:
                server.kill()
            made.append(noop.job(number))
            yield made[-1]

    def after_first_batch(accepted: int) -> None:
        assert accepted == 250

    if progress:
        with pytest.raises(StoreUnavailable) as caught:
            enqueue_many(jobs(), on_progress=after_first_batch)
        assert caught.value.accepted == 250
        unsent = made[250:500]
    else:
        server.kill()
        with pytest.raises(StoreUnavailable) as caught:
            enqueue_many(jobs())
        assert caught.value.accepted == 0
        unsent = made
    assert [job.id for job in caught.value.unsent] == [job.id for job in unsent]
    assert {job.state for job in unsent} == {State.UNSENT}
    with pytest.raises(StoreUnavailable) as again:
        caught.value.resend()
    server.restart()
    again.value.resend()
    caught.value.resend()
    assert {job.state for job in unsent} == {State.READY}
    assert inspection().counts().ready == {"default": 500 if progress else 600}


@pytest.mark.parametrize("shards", [1, 4])
def test_jobs_of_a_batch_reach_all_shards(shards: int, delayq_settings: Any, client: Redis) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": shards}
    handles = noop.enqueue_many([(number,) for number in range(100)])
    assert isinstance(handles, list)
    assert {handle.id.rsplit("-")[1] for handle in handles} == {str(shard) for shard in range(shards)}
    assert [stored(handle).args for handle in handles] == [[number] for number in range(100)]
