"""Sender: it sends a batch while the next is made, and reads its reply whatever happens meanwhile."""

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
from tests.inspection import inspection
from tests.sample_app.tasks import noop

pytestmark = pytest.mark.usefixtures("delayq_settings")

DURABLE = {"appendonly": "yes", "appendfsync": "always"}


class Stop(BaseException):
    """An interrupt from outside of the code, such as one that ends the process."""


def waiting() -> int:
    counts = inspection().counts()
    return counts.ready.get("default", 0) + counts.scheduled.get("default", 0)


def wait_for(number: int) -> None:
    while waiting() < number:
        pass


def made(number: int, *, then: Callable[[], object] | None = None) -> Iterator[tuple[int]]:
    """Yield arguments of `number` jobs, then call `then`."""
    yield from ((each,) for each in range(number))
    if then is not None:
        then()


def fails(error: BaseException) -> Callable[[], object]:
    def fail() -> None:
        raise error

    return fail


def test_a_batch_is_stored_while_the_next_is_made() -> None:
    progress: list[int] = []
    # If it were not stored, wait_for() would never return.
    assert noop.enqueue_many(made(600, then=lambda: wait_for(500)), on_progress=progress.append) == 600
    assert progress == [250, 500, 600]


def test_an_error_of_on_progress_leaves_no_unread_reply_and_makes_no_more_jobs() -> None:
    arguments = made(1_000)

    def fail_at_500(accepted: int) -> None:
        if accepted == 500:
            raise ValueError("no more")

    with pytest.raises(ValueError, match="no more") as caught:
        noop.enqueue_many(arguments, on_progress=fail_at_500)
    # A caller may continue with the same iterator: all jobs made so far are stored.
    assert next(arguments) == (750,) and waiting() == 750
    assert caught.value.__notes__ == ["enqueue_many() had accepted 750 jobs by then."]


def test_an_error_of_the_arguments_leaves_no_unread_reply_and_reports_all_progress() -> None:
    progress: list[int] = []
    with pytest.raises(ValueError, match="no more") as caught:
        noop.enqueue_many(made(600, then=fails(ValueError("no more"))), on_progress=progress.append)
    assert waiting() == 500 and progress == [250, 500]
    assert caught.value.__notes__ == ["enqueue_many() had accepted 500 jobs by then."]


def test_a_reply_that_an_interrupt_left_unread_reaches_no_other_request() -> None:
    with pytest.raises(Stop):
        noop.enqueue_many(made(600, then=fails(Stop())), on_progress=lambda accepted: None)
    assert get_store()._producer_shards[0].execute("ECHO", "mine") == b"mine"
    assert noop.enqueue().state is State.READY


def test_jobs_without_a_read_reply_can_be_sent_again_after_an_interrupt() -> None:
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
def test_after_a_refused_batch_the_next_is_not_sent(before: int) -> None:
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


def test_a_job_cancelled_or_rescheduled_while_it_is_sent_stays_so() -> None:
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


def test_a_receiver_of_the_first_job_may_cancel_the_last() -> None:
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
    # Each job has the due time of its own reply.
    due = [job.due for job in jobs if job is not jobs[600]]
    assert due == sorted(moment for moment in due if moment) and jobs[699].due == get_job(jobs[699].id).due


def test_a_job_that_is_made_twice_is_sent_once() -> None:
    job, other = noop.job(1), noop.job(2)
    progress: list[int] = []
    assert enqueue_many(iter([job, other, job]), on_progress=progress.append) == 2 and progress == [2]
    first = noop.job("first")
    jobs = [first, *(noop.job(number) for number in range(499))]
    with pytest.raises(TypeError, match=f"{first.id} was sent"):
        enqueue_many(iter([*jobs, first]), on_progress=progress.append)
    assert waiting() == 502 and progress == [2, 250, 500]


def test_one_connection_is_enough_even_if_making_the_jobs_uses_one(start_redis: Any, delayq_settings: Any) -> None:
    path = start_redis().url.removeprefix("unix://").partition("?")[0]
    delayq_settings.DELAYQ = {"REDIS": {"unix_socket_path": path, "max_connections": 1}}
    progress: list[tuple[int, int]] = []
    number = 0

    def jobs() -> Iterator[JobHandle]:
        nonlocal number
        for number in range(1, 601):
            if number % 100 == 99:
                noop.using(queue="other").enqueue()
            yield noop.job(number)

    assert enqueue_many(jobs(), on_progress=lambda accepted: progress.append((accepted, number))) == 600
    # No report waits until the next job is made.
    assert progress == [(250, 250), (500, 500), (600, 600)]
    assert inspection().counts().ready == {"default": 600, "other": 6}


def test_an_error_of_a_nested_enqueue_keeps_its_own_unsent_jobs(start_redis: Any, delayq_settings: Any) -> None:
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


def test_if_a_batch_fails_its_jobs_and_those_of_the_next_are_unsent(start_redis: Any, delayq_settings: Any) -> None:
    server: LocalRedisServer = start_redis(options=DURABLE)
    delayq_settings.DELAYQ = {"REDIS": server.url}
    jobs = [noop.job(number) for number in range(900)]
    progress: list[int] = []

    def some() -> Iterator[JobHandle]:
        yield from jobs[:400]
        # The second batch is sent, but the server never reads it.
        os.kill(server.pid or 0, signal.SIGSTOP)
        yield from jobs[400:600]
        server.kill()
        yield from jobs[600:]

    with pytest.raises(StoreUnavailable) as caught:
        enqueue_many(some(), on_progress=progress.append)
    assert caught.value.accepted == 250 and progress == [250] and caught.value.maybe_accepted
    assert [job.id for job in caught.value.unsent] == [job.id for job in jobs[250:750]]
    server.restart()
    caught.value.resend()
    assert waiting() == 750 and {job.state for job in jobs[750:]} == {State.UNSENT}


def test_after_a_script_flush_the_script_is_loaded_again_and_no_batch_is_lost(client: Redis) -> None:
    def arguments() -> Iterator[tuple[int]]:
        yield from made(400)
        client.script_flush()
        yield from made(400)

    assert noop.enqueue_many(arguments(), on_progress=lambda accepted: None) == 800
    assert waiting() == 800
