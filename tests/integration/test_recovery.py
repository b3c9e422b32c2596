"""Recovery: two processes at most, each up before it is reserved, and ended when none was needed for a while."""

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
from django_delayq.worker.pools import recovery as module
from django_delayq.worker.pools.recovery import MOST, RecoveryGate, RecoveryRunner
from tests.factories import claim_for

#: Seconds in which a process is up on a busy machine.
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
def recovery(delayq_settings: object) -> Iterator[RecoveryRunner]:
    """The processes of one pool."""
    recovery = RecoveryRunner()
    yield recovery
    recovery.close()


def started(recovery: RecoveryRunner) -> None:
    """Start one more process, and wait until it is up."""
    up = threading.Event()
    recovery.start(up.set)
    assert up.wait(PATIENCE)


def suspect() -> object:
    """A claim of a job whose last attempt crashed."""
    job = Job(raw_id=next_id(), shard=0, task="tests.sample_app.tasks.noop", queue="default")
    return claim_for(job, attempts=AttemptHistory(ended=1, crash_suspected=True))


def test_a_process_is_up_before_it_is_reserved_and_for_one_claim_only(recovery: RecoveryRunner) -> None:
    assert not recovery.reserve()
    for _ in range(MOST):
        started(recovery)
        assert recovery.reserve()
        assert not recovery.reserve()
    recovery.release()
    assert recovery.reserve()


def test_there_are_never_more_than_two(recovery: RecoveryRunner) -> None:
    for _ in range(MOST):
        started(recovery)
        assert recovery.reserve()
    recovery.start(lambda: None)
    assert not recovery._starts
    assert recovery._children.count == MOST
    assert not recovery.free


def test_a_process_that_crashed_is_not_free(recovery: RecoveryRunner) -> None:
    started(recovery)
    assert recovery.reserve()
    [child] = recovery._children._idle
    child.kill()
    recovery.release()
    assert not recovery.free


def test_processes_that_died_idle_make_room_for_others(recovery: RecoveryRunner) -> None:
    for _ in range(MOST):
        started(recovery)
        assert recovery.reserve()
    for _ in range(MOST):
        recovery.release()
    # As the kernel does where memory runs out: nobody of ours sees them end.
    for child in recovery._children._idle:
        child._process.kill()
        child._process.join()
    started(recovery)
    assert recovery.reserve()
    assert recovery._children.count == 1


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


def test_a_process_is_used_again_and_ends_when_none_has_come_for_a_while(
    recovery: RecoveryRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(recovery)
    for _ in range(2):
        assert recovery.reserve()
        assert recovery.run(suspect(), lambda: True).kind is OutcomeKind.SUCCEEDED
        recovery.release()
    assert recovery._children.count == 1
    recovery.rest()
    assert recovery.free
    monkeypatch.setattr(module, "_IDLE", 0.0)
    recovery.rest()
    assert recovery._children.count == 0
    assert not recovery.free


def test_a_worker_keeps_a_process_for_what_may_come_and_no_longer(recovery: RecoveryRunner) -> None:
    woken = threading.Event()
    recovered = RecoveryGate(recovery, woken.set)
    claim = suspect()
    recovered.record_reply(ExchangeReply(recovered=True, claims=[], **FACTS))
    assert not recovered.may_claim()
    assert not recovered.due
    assert woken.wait(PATIENCE)
    assert recovered.due
    # One that brings nothing, then one that brings a job.
    for claims in ([], [claim]):
        assert recovered.may_claim()
        assert not recovery.free
        recovered.record_reply(ExchangeReply(recovered=True, claims=claims, **FACTS))
        assert recovery.free == (not claims)
    assert not recovered.may_claim()
    recovered.ended(claim)
    assert recovered.due
    # Who has one for an exchange that was given up has it for the next.
    assert recovered.may_claim()
    assert recovered.may_claim()
    recovered.record_reply(ExchangeReply(recovered=False, claims=[], **FACTS))
    assert recovery.free
    assert not recovered.due


def test_while_an_exchange_has_no_answer_others_have_the_process(recovery: RecoveryRunner) -> None:
    away, other = RecoveryGate(recovery, lambda: None), RecoveryGate(recovery, lambda: None)
    claim = suspect()
    started(recovery)
    assert away.may_claim()
    assert not other.may_claim()
    away.unanswered()
    away.unanswered()
    assert other.may_claim()
    # What was sent is sent again word for word, and may bring one after all: without a process it does not run.
    assert not away.record_reply(ExchangeReply(recovered=False, claims=[claim], **FACTS))
    away.ended(claim)
    assert away.left, "it waits for the next exchange"
    assert not recovery.free
    other.record_reply(ExchangeReply(recovered=False, claims=[], **FACTS))
    assert recovery.free
    # With a process that is free again it runs.
    assert away.record_reply(ExchangeReply(recovered=False, claims=[claim], **FACTS))
    assert not recovery.free
    away.ended(claim)
    assert recovery.free


def test_a_pool_that_runs_no_task_takes_them_like_others() -> None:
    recovered = RecoveryGate(None, lambda: None)
    assert recovered.may_claim()
    assert recovered.record_reply(ExchangeReply(recovered=True, claims=[suspect()], **FACTS))
    recovered.ended(suspect())
    recovered.unanswered()
    assert recovered.due


def test_a_claim_whose_lease_is_lost_meanwhile_does_not_begin(recovery: RecoveryRunner) -> None:
    started(recovery)
    assert recovery.reserve()
    assert recovery.run(suspect(), lambda: False) is UNSTARTED
    recovery.release()
    assert recovery.free
