"""Recovery: at most two processes, each ready before it is reserved, and ended after a while without recovered jobs."""

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.ids import next_id
from django_delayq.job.job import Job
from django_delayq.job.outcome import UNSTARTED, OutcomeKind
from django_delayq.store.claims import ExchangeReply
from django_delayq.worker.pools.recovery import MAX_PROCESSES, RecoveryGate, RecoveryRunner
from tests.factories import claim_for
from tests.stepped_worker import WorkerClock

#: Seconds in which a process is ready, on a busy machine.
PATIENCE = 60.0
FACTS = {
    "claimed": True,
    "blocking": False,
    "now_us": 1,
    "lost": frozenset(),
    "overdue_in_us": 1,
    "queues_version": b"",
    "has_more": False,
    "unknown_worker": False,
}


@pytest.fixture
def clock() -> WorkerClock:
    """The clock of `recovery`."""
    return WorkerClock()


@pytest.fixture
def recovery(delayq_settings: object, clock: WorkerClock) -> Iterator[RecoveryRunner]:
    """The processes of one pool."""
    recovery = RecoveryRunner(clock=clock)
    yield recovery
    recovery.close()


def started(recovery: RecoveryRunner) -> None:
    """Start one more process, and wait until it is ready."""
    ready = threading.Event()
    recovery.start(ready.set)
    assert ready.wait(PATIENCE)


def suspect() -> object:
    """Return a claim of a job whose last attempt crashed."""
    job = Job(raw_id=next_id(), shard=0, task="tests.sample_app.tasks.noop", queue="default")
    return claim_for(job, attempts=AttemptHistory(ended=1, crash_suspected=True))


def test_a_process_is_ready_before_it_is_reserved_and_for_one_claim_only(recovery: RecoveryRunner) -> None:
    assert not recovery.reserve()
    for _ in range(MAX_PROCESSES):
        started(recovery)
        assert recovery.reserve()
        assert not recovery.reserve()
    recovery.release()
    assert recovery.reserve()


def test_there_are_never_more_than_two(recovery: RecoveryRunner) -> None:
    for _ in range(MAX_PROCESSES):
        started(recovery)
        assert recovery.reserve()
    recovery.start(lambda: None)
    assert not recovery._is_starting
    assert recovery._processes.count == MAX_PROCESSES
    assert not recovery.has_free


def test_a_process_that_crashed_is_not_free(recovery: RecoveryRunner) -> None:
    started(recovery)
    assert recovery.reserve()
    [child] = recovery._processes._idle
    child.kill()
    recovery.release()
    assert not recovery.has_free


def test_processes_that_died_idle_make_room_for_others(recovery: RecoveryRunner) -> None:
    for _ in range(MAX_PROCESSES):
        started(recovery)
        assert recovery.reserve()
    for _ in range(MAX_PROCESSES):
        recovery.release()
    # As the kernel does if memory runs out: nothing in the worker notices their end.
    for child in recovery._processes._idle:
        child._process.kill()
        child._process.join()
    started(recovery)
    assert recovery.reserve()
    assert recovery._processes.count == 1


@pytest.mark.parametrize(
    ("refusal", "raised"),
    [(RuntimeError("can't start new thread"), nullcontext()), (MemoryError(), pytest.raises(MemoryError))],
    ids=["no thread", "no memory"],
)
def test_a_process_can_start_once_the_system_has_a_thread_again(
    recovery: RecoveryRunner, monkeypatch: pytest.MonkeyPatch, refusal: Exception, raised: Any
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise refusal

    with monkeypatch.context() as full, raised:
        full.setattr(threading.Thread, "start", refuse)
        recovery.start(lambda: None)
    started(recovery)
    assert recovery.reserve()


def test_a_process_is_used_again_and_ends_after_a_while_without_jobs(
    recovery: RecoveryRunner, clock: WorkerClock
) -> None:
    started(recovery)
    for _ in range(2):
        assert recovery.reserve()
        assert recovery.run(suspect(), lambda: True).kind is OutcomeKind.SUCCEEDED
        recovery.release()
    assert recovery._processes.count == 1
    recovery.end_if_idle()
    assert recovery.has_free
    clock.ahead = 30.0
    recovery.end_if_idle()
    assert recovery._processes.count == 0
    assert not recovery.has_free


def test_a_worker_reserves_a_process_for_one_request_only(recovery: RecoveryRunner) -> None:
    woken = threading.Event()
    recovered = RecoveryGate(recovery, woken.set)
    claim = suspect()
    recovered.record_reply(ExchangeReply(recovered=True, claims=[], **FACTS))
    assert not recovered.may_claim()
    assert not recovered.poll()
    assert woken.wait(PATIENCE)
    assert recovered.poll()
    # One request that brings nothing, then one that brings a job.
    for claims in ([], [claim]):
        assert recovered.may_claim()
        assert not recovery.has_free
        recovered.record_reply(ExchangeReply(recovered=True, claims=claims, **FACTS))
        assert recovery.has_free == (not claims)
    assert not recovered.may_claim()
    recovered.release(claim)
    assert recovered.poll()
    # A reservation for a request that was not sent is kept for the next one.
    assert recovered.may_claim()
    assert recovered.may_claim()
    recovered.record_reply(ExchangeReply(recovered=False, claims=[], **FACTS))
    assert recovery.has_free
    assert not recovered.poll()


def test_while_a_request_has_no_reply_others_can_reserve_the_process(recovery: RecoveryRunner) -> None:
    away, other = RecoveryGate(recovery, lambda: None), RecoveryGate(recovery, lambda: None)
    claim = suspect()
    started(recovery)
    assert away.may_claim()
    assert not other.may_claim()
    away.cancel_reservation()
    away.cancel_reservation()
    assert other.may_claim()
    # The request is sent again unchanged and may still bring a job; without a process the job does not run.
    assert not away.record_reply(ExchangeReply(recovered=False, claims=[claim], **FACTS))
    away.release(claim)
    assert away.jobs_left, "it waits for the next exchange"
    assert not recovery.has_free
    other.record_reply(ExchangeReply(recovered=False, claims=[], **FACTS))
    assert recovery.has_free
    # Once a process is free again, the job runs.
    assert away.record_reply(ExchangeReply(recovered=False, claims=[claim], **FACTS))
    assert not recovery.has_free
    away.release(claim)
    assert recovery.has_free


def test_a_pool_that_runs_no_tasks_claims_recovered_jobs_like_others() -> None:
    recovered = RecoveryGate(None, lambda: None)
    assert recovered.may_claim()
    assert recovered.record_reply(ExchangeReply(recovered=True, claims=[suspect()], **FACTS))
    recovered.release(suspect())
    recovered.cancel_reservation()
    assert recovered.poll()


def test_a_claim_whose_lease_is_lost_meanwhile_does_not_begin(recovery: RecoveryRunner) -> None:
    started(recovery)
    assert recovery.reserve()
    assert recovery.run(suspect(), lambda: False) is UNSTARTED
    recovery.release()
    assert recovery.has_free
