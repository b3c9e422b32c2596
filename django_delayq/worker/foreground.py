"""Foreground: claim one job, run it in this thread, and settle it, while a thread of its own renews the lease."""

import bdb
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event, current_thread, main_thread
from time import sleep
from typing import Any

from django_delayq import runtime
from django_delayq.exceptions import StoreUnavailable
from django_delayq.job.ending import EndingBuffer
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
from django_delayq.worker.claiming.heartbeats import Heartbeats
from django_delayq.worker.claiming.leases import HeldClaims
from django_delayq.worker.claiming.worker_notification import WorkerNotification
from django_delayq.worker.settlement import decide_settlement, emit_all

#: How often an outcome is sent if Redis does not answer, and the seconds between.
_TRIES, _PAUSE = 30, 1.0
#: Seconds for which the end waits for a heartbeat that is on its way.
_LAST_HEARTBEAT = 5.0
#: A person ended the run: Ctrl-C, or the debugger's `quit`. It is no failure of the job.
_ENDED_BY_PERSON = (KeyboardInterrupt, bdb.BdbQuit)


class _Terminated(BaseException):
    """SIGTERM ended the run. A task that catches every `Exception` does not catch it."""


class _Termination:
    """SIGTERM from the claim to the settled outcome: it ends the code, but not the process, so that nothing is lost.

    Only in the main thread; elsewhere a process has other handlers.
    """

    def __init__(self) -> None:
        #: Whether the code was ended.
        self.ended_code = False
        self._came = self._code_runs = False

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signal."""
        if current_thread() is not main_thread():
            yield
            return
        before = signal.signal(signal.SIGTERM, self._handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)

    @contextmanager
    def ends_code(self) -> Iterator[None]:
        """Raise `_Terminated` in this block once the signal has come, also before it."""
        self._code_runs = True
        try:
            if self._came:
                self._end()
            yield
        finally:
            self._code_runs = False

    def _handle(self, *_: Any) -> None:
        self._came = True
        if self._code_runs:
            self._end()

    def _end(self) -> None:
        self.ended_code = True
        raise _Terminated


@dataclass(frozen=True, slots=True, kw_only=True)
class ForegroundRun:
    """One attempt that ran in the foreground."""

    claim: Claim
    outcome: Outcome
    settlement: Settlement
    #: Its lease was lost meanwhile, so the outcome was refused.
    lost: bool


@dataclass(frozen=True, slots=True)
class _ForegroundLink:
    """The link of the running code to the thread that sends heartbeats."""

    held: HeldClaims
    heartbeats: Heartbeats
    lease: bytes

    @property
    def should_stop(self) -> bool:
        return self.lease in self.held.stopping

    def report_progress(self, progress: Progress) -> None:
        self.heartbeats.report_progress(self.lease, progress)


def run_one(
    shard: Shard,
    raw_id: bytes,
    *,
    on_exception: Callable[[BaseException], object] = lambda _: None,
) -> ForegroundRun | None:
    """Claim a waiting job and run it in this thread; None if it does not wait.

    Nothing limits its time, so that a person can use a debugger; neither does its expiry. `on_exception` is called with
    an exception that ended the task, while the lease is still renewed. A run that a person or SIGTERM ends is settled
    as interrupted. Code whose lease may be lost, or that was asked to stop, does not begin. A job that runs again waits
    for its due time, if that is still ahead. Raises `StoreError`s.
    """
    termination = _Termination()
    with termination.handled():
        return _run_one(shard, raw_id, on_exception, termination)


def _run_one(
    shard: Shard,
    raw_id: bytes,
    on_exception: Callable[[BaseException], object],
    termination: _Termination,
) -> ForegroundRun | None:
    name, claims, ended = process_name(), Claims(shard), Event()
    claim = claims.claim_one(raw_id, worker_name=name)
    if claim is None:
        return None
    lease_us = shard.config.worker.lease_us
    held = HeldClaims(lease_us=lease_us)
    notification = WorkerNotification(shard, lambda: claims.worker_id)
    heartbeats = Heartbeats(
        held, claims.heartbeat, lease_us=lease_us, name=name, notification=notification, ended=ended.set
    )
    unlimited = claim
    if claim.job is not None:
        unlimited = replace(claim, job=replace(claim.job, timeout_us=None, hard_timeout_us=None, expiry=None))
    held.add([unlimited])
    # A heartbeat before the code begins: it confirms the claim.
    heartbeats.step()
    heartbeats.start()
    raised: list[BaseException] = []

    def note(error: BaseException) -> None:
        raised.append(error)
        if not isinstance(error, (_Terminated, *_ENDED_BY_PERSON)):
            on_exception(error)

    try:
        outcome = UNSTARTED
        if held.begin(claim.lease):
            try:
                with termination.ends_code(), runtime.override(on_task_exception=note):
                    outcome = execution.run(unlimited, _ForegroundLink(held, heartbeats, claim.lease))
            except (_Terminated, *_ENDED_BY_PERSON) as error:
                # Between the code of the task and the code around it.
                raised.append(error)
        by_person = bool(raised) and isinstance(raised[-1], _ENDED_BY_PERSON)
        if by_person or (termination.ended_code and outcome.kind is not OutcomeKind.SUCCEEDED):
            outcome = replace(outcome, kind=OutcomeKind.INTERRUPTED, error=WORKER_STOPPED)
        if claim.lease in held.stopping:
            outcome = stopped(outcome)
        # A heartbeat that arrives after the outcome finds no lease, yet none is lost.
        held.settling([claim.lease])
        settlement, reply = _settle(claims, claim, outcome, name)
        if claim.lease in reply.stopped:
            # Somebody asked it to stop after it had ended, so it may not run again.
            outcome = stopped(outcome)
            settlement, reply = _settle(claims, claim, outcome, name)
    finally:
        heartbeats.end()
        # A late heartbeat would list this process again.
        ended.wait(_LAST_HEARTBEAT)
    metrics, endings = MetricsBuffer(), EndingBuffer(shard.config.worker.finished_kept)
    emit_all([(settlement, outcome)], lost=reply.lost, metrics=metrics, endings=endings, emit=emit_now)
    ProcessReports(shard).deregister(claims.worker_id, metrics.take(), endings.take(), name=name)
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
