"""Sender: a batch is on its way while the next is made; whatever happens meanwhile, it gets its receipt."""

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from django_delayq import enqueue_many, get_job, get_store
from django_delayq.exceptions import KeyHeld, StoreUnavailable
from django_delayq.job.job import State
from django_delayq.signals import job_enqueued
from django_delayq.task.handle import JobHandle
from django_delayq.testing.local_redis import LocalRedisServer
from tests.sample_app.tasks import noop

pytestmark = pytest.mark.usefixtures("delayq_settings")

DURABLE = {"appendonly": "yes", "appendfsync": "always"}


class Stop(BaseException):
    """What ends a process, or strikes from outside."""


def waiting() -> int:
    counts = get_store().lookup(0).counts()
    return counts.ready.get("default", 0) + counts.scheduled.get("default", 0)


def wait_for(number: int) -> None:
    while waiting() < number:
        pass


def made(number: int, *, then: Callable[[], object] | None = None) -> Iterator[tuple[int]]:
    """Arguments of so many jobs; then something happens."""
    yield from ((each,) for each in range(number))
    if then is not None:
        then()


def fails(error: BaseException) -> Callable[[], object]:
    def fail() -> None:
        raise error

    return fail


def test_a_chunk_is_stored_while_the_next_is_made() -> None:
    told: list[int] = []
    # It would wait for ever.
    assert noop.enqueue_many(made(600, then=lambda: wait_for(500)), on_progress=told.append) == 600
    assert told == [250, 500, 600]


def test_progress_that_fails_leaves_nothing_on_its_way_and_the_rest_unmade() -> None:
    arguments = made(1_000)

    def fail_at_500(accepted: int) -> None:
        if accepted == 500:
            raise ValueError("no more")

    with pytest.raises(ValueError, match="no more") as caught:
        noop.enqueue_many(arguments, on_progress=fail_at_500)
    # Who goes on with the same iterator misses nothing: what was made is stored.
    assert next(arguments) == (750,) and waiting() == 750
    assert caught.value.__notes__ == ["enqueue_many() had accepted 750 jobs by then."]


def test_arguments_that_fail_to_come_leave_nothing_on_its_way_and_all_is_told() -> None:
    told: list[int] = []
    with pytest.raises(ValueError, match="no more") as caught:
        noop.enqueue_many(made(600, then=fails(ValueError("no more"))), on_progress=told.append)
    assert waiting() == 500 and told == [250, 500]
    assert caught.value.__notes__ == ["enqueue_many() had accepted 500 jobs by then."]


def test_an_answer_that_an_interrupt_left_unread_is_nobody_elses() -> None:
    with pytest.raises(Stop):
        noop.enqueue_many(made(600, then=fails(Stop())), on_progress=lambda accepted: None)
    line = get_store()._producer_shards[0].connection_cache
    assert line.execute("ECHO", "mine") == b"mine"
    assert noop.enqueue().state is State.READY


def test_jobs_that_an_interrupt_left_on_their_way_can_be_sent_again() -> None:
    jobs = [noop.job(number) for number in range(600)]

    def some() -> Iterator[JobHandle]:
        yield from jobs
        wait_for(500)
        raise Stop

    with pytest.raises(Stop):
        enqueue_many(some(), on_progress=lambda accepted: None)
    assert {job.state for job in jobs[:250]} == {State.READY} and {job.state for job in jobs[250:]} == {State.UNSENT}
    enqueue_many(jobs[250:])
    assert waiting() == 600


@pytest.mark.parametrize("before", [0, 250])
def test_a_chunk_that_is_refused_keeps_the_next_from_being_sent(before: int) -> None:
    holder = noop.using(key="k").after(60).enqueue()
    first = [noop.job(number) for number in range(before)]
    jobs = [noop.using(key="k", unique="reject").job(), *(noop.job(number) for number in range(600))]
    with pytest.raises(KeyHeld, match="'k'") as caught:
        enqueue_many([*first, *jobs])
    assert (caught.value.accepted, caught.value.holder, caught.value.refused) == (before, holder.id, jobs[0])
    with pytest.raises(KeyHeld) as caught:
        enqueue_many(iter(jobs), on_progress=lambda accepted: None)
    assert (caught.value.accepted, caught.value.holder) == (0, holder.id)
    assert waiting() == before + 1 and {job.state for job in jobs} == {State.UNSENT}


def test_a_job_that_is_cancelled_or_moved_on_its_way_stays_as_it_was_asked_to_be() -> None:
    jobs = [noop.job(number) for number in range(600)]

    def some() -> Iterator[JobHandle]:
        yield from jobs[:500]
        wait_for(500)
        assert jobs[300].cancel() and jobs[301].reschedule(delay=3_600)
        assert jobs[302].state is State.READY
        yield from jobs[500:]

    assert enqueue_many(some(), on_progress=lambda accepted: None) == 600
    assert [job.state for job in jobs[299:304]] == [
        *(State.READY, State.GONE, State.SCHEDULED, State.READY, State.READY),
    ]
    assert get_job(jobs[300].id) is None and waiting() == 599


def test_who_hears_of_the_first_may_cancel_the_last() -> None:
    jobs = [noop.after(number + 1).job(number) for number in range(700)]
    cancelled: list[bool] = []

    def cancel(**_: Any) -> None:
        if not cancelled:
            cancelled.append(jobs[600].cancel())

    job_enqueued.connect(cancel)
    try:
        enqueue_many(jobs)
    finally:
        job_enqueued.disconnect(cancel)
    assert cancelled == [True] and jobs[600].state is State.GONE and waiting() == 699
    # Each has its own receipt.
    due = [job.due for job in jobs if job is not jobs[600]]
    assert due == sorted(moment for moment in due if moment) and jobs[699].due == get_job(jobs[699].id).due


def test_a_job_that_is_made_twice_is_sent_once() -> None:
    job, other = noop.job(1), noop.job(2)
    told: list[int] = []
    assert enqueue_many(iter([job, other, job]), on_progress=told.append) == 2 and told == [2]
    first = noop.job("first")
    jobs = [first, *(noop.job(number) for number in range(499))]
    with pytest.raises(TypeError, match=f"{first.id} was sent"):
        enqueue_many(iter([*jobs, first]), on_progress=told.append)
    assert waiting() == 502 and told == [2, 250, 500]


def test_one_connection_is_enough_even_where_making_the_jobs_takes_one(start_redis: Any, delayq_settings: Any) -> None:
    path = start_redis().url.removeprefix("unix://").partition("?")[0]
    delayq_settings.DELAYQ = {"REDIS": {"unix_socket_path": path, "max_connections": 1}}
    told: list[tuple[int, int]] = []
    number = 0

    def jobs() -> Iterator[JobHandle]:
        nonlocal number
        for number in range(1, 601):
            if number % 100 == 99:
                noop.using(queue="other").enqueue()
            yield noop.job(number)

    assert enqueue_many(jobs(), on_progress=lambda accepted: told.append((accepted, number))) == 600
    # None is held back until the next is made.
    assert told == [(250, 250), (500, 500), (600, 600)]
    assert get_store().lookup(0).counts().ready == {"default": 600, "other": 6}


def test_a_failure_of_others_keeps_what_it_tells(start_redis: Any, delayq_settings: Any) -> None:
    server: LocalRedisServer = start_redis(options=DURABLE)
    delayq_settings.DELAYQ = {"REDIS": server.url}
    single = noop.job("single")

    def jobs() -> Iterator[JobHandle]:
        yield from (noop.job(number) for number in range(250))
        server.kill()
        enqueue_many([single])

    with pytest.raises(StoreUnavailable) as caught:
        enqueue_many(jobs(), on_progress=lambda accepted: None)
    assert [job.id for job in caught.value.unsent] == [single.id]
    assert caught.value.__notes__[-1] == "enqueue_many() had accepted 250 jobs by then."


def test_of_two_chunks_made_the_one_that_fails_and_the_next_are_named(start_redis: Any, delayq_settings: Any) -> None:
    server: LocalRedisServer = start_redis(options=DURABLE)
    delayq_settings.DELAYQ = {"REDIS": server.url}
    jobs = [noop.job(number) for number in range(900)]
    told: list[int] = []

    def some() -> Iterator[JobHandle]:
        yield from jobs[:400]
        # The second chunk is sent, and never read.
        os.kill(server.pid or 0, signal.SIGSTOP)
        yield from jobs[400:600]
        server.kill()
        yield from jobs[600:]

    with pytest.raises(StoreUnavailable) as caught:
        enqueue_many(some(), on_progress=told.append)
    assert caught.value.accepted == 250 and told == [250] and caught.value.maybe_accepted
    assert [job.id for job in caught.value.unsent] == [job.id for job in jobs[250:750]]
    server.restart()
    caught.value.resend()
    assert waiting() == 750 and {job.state for job in jobs[750:]} == {State.UNSENT}


def test_a_server_that_forgot_the_script_is_told_it_and_stores_what_was_on_its_way(client: Redis) -> None:
    def arguments() -> Iterator[tuple[int]]:
        yield from made(400)
        client.script_flush()
        yield from made(400)

    assert noop.enqueue_many(arguments(), on_progress=lambda accepted: None) == 800
    assert waiting() == 800
