"""Foreground: claim one job, run it in this thread, and settle it, while a thread of its own renews the lease."""

import bdb
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Event
from time import sleep

from django_delayq import runtime
from django_delayq.exceptions import StoreUnavailable
from django_delayq.job.job import Claim
from django_delayq.job.outcome import UNSTARTED, WORKER_STOPPED, Outcome, OutcomeKind, stopped
from django_delayq.job.progress import Progress
from django_delayq.metrics import MetricsBuffer
from django_delayq.processes.emitter import emit_now
from django_delayq.processes.service import process_name
from django_delayq.store.claims import Claims, ExchangeReply, Settlement
from django_delayq.store.process_reports import ProcessReports
from django_delayq.store.shard import Shard
from django_delayq.worker import execution
from django_delayq.worker.claiming.leases import HeldClaims
from django_delayq.worker.claiming.queue_listener import OwnNotification
from django_delayq.worker.settlement import decide_settlement, emit_all

#: How often an outcome is sent if Redis does not answer, and the seconds between.
_TRIES, _PAUSE = 30, 1.0
#: Seconds for which the end waits for a heartbeat that is on its way.
_LAST_HEARTBEAT = 5.0
#: A person ended the run: Ctrl-C, or the debugger's `quit`. It is no failure of the job.
_ENDED_BY_PERSON = (KeyboardInterrupt, bdb.BdbQuit)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForegroundRun:
    """One attempt that ran in the foreground."""

    claim: Claim
    outcome: Outcome
    settlement: Settlement
    #: Its lease was lost meanwhile: the outcome was refused, and the job runs again elsewhere.
    lost: bool


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The running attempt, as its code sees it."""

    held: HeldClaims
    lease: bytes

    @property
    def should_stop(self) -> bool:
        return self.held.is_stopping(self.lease)

    def report_progress(self, progress: Progress) -> None:
        self.held.report_progress(self.lease, progress)


def run_one(
    shard: Shard,
    raw_id: bytes,
    *,
    on_exception: Callable[[BaseException], object] = lambda _: None,
) -> ForegroundRun | None:
    """Claim a waiting job and run it in this thread; None if it does not wait.

    Nothing limits its time, so that a person can use a debugger; neither does its expiry. `on_exception` is called with
    an exception that ended the task, while the lease is still renewed. A run that a person ends is settled as
    interrupted. Code whose lease may be lost, or that was asked to stop, does not begin. A job that runs again waits
    for its due time, if that is still ahead. Raises `StoreError`s.
    """
    name, claims, ended = process_name(), Claims(shard), Event()
    claim = claims.claim_one(raw_id, worker_name=name)
    if claim is None:
        return None
    held = HeldClaims(
        claims.heartbeat,
        lease_us=shard.config.worker.lease_us,
        name=name,
        ended=ended.set,
        notification=OwnNotification(shard, lambda: claims.worker_id),
    )
    unlimited = claim
    if claim.job is not None:
        unlimited = replace(claim, job=replace(claim.job, timeout_us=None, hard_timeout_us=None, expiry=None))
    held.add([unlimited])
    # A heartbeat before the code begins: it confirms the claim.
    held.step()
    held.start()
    raised: list[BaseException] = []

    def note(error: BaseException) -> None:
        raised.append(error)
        if not isinstance(error, _ENDED_BY_PERSON):
            on_exception(error)

    try:
        outcome = UNSTARTED
        if held.begin(claim.lease):
            with runtime.override(on_task_exception=note):
                outcome = execution.run(unlimited, _Attempt(held, claim.lease))
        if raised and isinstance(raised[-1], _ENDED_BY_PERSON):
            outcome = replace(outcome, kind=OutcomeKind.INTERRUPTED, error=WORKER_STOPPED)
        if held.is_stopping(claim.lease):
            outcome = stopped(outcome)
        # A heartbeat that arrives after the outcome finds no lease, yet none is lost.
        held.settling([claim.lease])
        settlement, reply = _settle(claims, claim, outcome, name)
        if claim.lease in reply.stopped:
            # Somebody asked it to stop after it had ended, so it may not run again.
            outcome = stopped(outcome)
            settlement, reply = _settle(claims, claim, outcome, name)
    finally:
        held.end_heartbeats()
        # A late heartbeat would list this process again.
        ended.wait(_LAST_HEARTBEAT)
    metrics = MetricsBuffer()
    emit_all([(settlement, outcome)], lost=reply.lost, metrics=metrics, emit=emit_now)
    ProcessReports(shard).deregister(claims.worker_id, metrics.take())
    return ForegroundRun(claim=claim, outcome=outcome, settlement=settlement, lost=claim.lease in reply.lost)


def _settle(claims: Claims, claim: Claim, outcome: Outcome, name: str) -> tuple[Settlement, ExchangeReply]:
    """Send the outcome, again if Redis does not answer."""
    settlement = decide_settlement(claim, outcome, worker=name)
    request = claims.prepare(queues=(), want=0, settlements=[settlement])
    for left in reversed(range(_TRIES)):
        try:
            return settlement, claims.settle_and_claim(request)
        except StoreUnavailable:
            if not left:
                raise
            sleep(_PAUSE)
    raise AssertionError("the last try returns or raises")
