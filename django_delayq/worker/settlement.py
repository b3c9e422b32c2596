"""Settlement: turn the outcome of an attempt into what the store records, then emit metrics, signals and log lines."""

import random
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from time import monotonic

from django_delayq.clock import DAY_US, SECOND_US
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.ending import ENDED, NO_ENDINGS, EndingBuffer
from django_delayq.job.job import DELAYED_TASK, Claim, State, TaskKind
from django_delayq.job.outcome import ACKNOWLEDGE, Action, Decision, Outcome, OutcomeKind, decide
from django_delayq.job.result import Result
from django_delayq.job.retry import RetryPolicy
from django_delayq.logs import job_fields, logger
from django_delayq.metrics import MetricsBuffer
from django_delayq.processes.emitter import Emission, Emit, emitter
from django_delayq.recurring.run import RunOutcome
from django_delayq.signals import announce, job_dead_lettered, job_dropped, job_expired, job_finished, send
from django_delayq.store.claims import Settlement
from django_delayq.task import registry
from django_delayq.worker.done_log import done_log
from django_delayq.worker.failure import exception_of

_DEFAULT_RETRY = RetryPolicy()
_COUNTED = {
    Action.ACKNOWLEDGE: "done",
    Action.RETRY: "retried",
    Action.DEAD_LETTER: "dead",
    Action.CANCEL: "cancelled",
}
_UNRUN: dict[str, State] = {OutcomeKind.EXPIRED: State.EXPIRED, OutcomeKind.DROPPED: State.DROPPED}
_ENDED = frozenset(state.value for state in ENDED)
_SIGNALS_UNRUN = {State.EXPIRED: job_expired, State.DROPPED: job_dropped}


def decide_settlement(
    claim: Claim, outcome: Outcome, *, worker: str, longest_wait_us: int = DAY_US, jitter: float | None = None
) -> Settlement:
    """Decide how to settle an attempt, and add it to the attempt history unless it is acknowledged or released.

    `longest_wait_us` is UNKNOWN_TASK_TTL. `jitter` is the share of the longest delay that a retry waits, drawn from
    [0, 1) by default.
    """
    if outcome.kind is OutcomeKind.SUCCEEDED and outcome.result is None:
        # `decide` returns this for most jobs. The short cut saves its cost.
        return Settlement(claim=claim, decision=ACKNOWLEDGE, attempts=claim.attempts)
    policy = claim.job.retry if claim.job else _DEFAULT_RETRY
    kind = claim.job.kind if claim.job else DELAYED_TASK
    jitter = random.random() if jitter is None else jitter
    attempts = claim.attempts
    decision = decide(
        outcome,
        policy,
        attempt=claim.attempt,
        jitter=jitter,
        interruptions=attempts.interruptions,
        # Not negative: the clock of Redis may have been set back.
        waited_us=max(0, claim.claimed_us - (attempts.waiting_since_us or claim.claimed_us)),
        longest_wait_us=longest_wait_us,
        waits_on_mismatch=kind.waits_on_mismatch,
        dead_if_expired=claim.job is not None and claim.job.expiry is not None and claim.job.expiry.dead,
    )
    if not decision.counted:
        return Settlement(claim=claim, decision=decision, attempts=_uncounted(claim, outcome))
    if decision.action in (Action.RETRY, Action.DEAD_LETTER):
        ended_us = _ended_us(claim, outcome)
        attempts = attempts.add(
            worker=worker,
            started_us=_started_us(claim, outcome, ended_us, kind),
            ended_us=ended_us,
            ending=outcome.kind,
            error=outcome.error,
            crash_suspected=decision.crash_suspected,
            due_us=claim.due_us,
            exception=outcome.exception,
        )
        if outcome.kind is OutcomeKind.INTERRUPTED:
            attempts = replace(attempts, interrupted=True)
    result = _result(claim, outcome, decision, worker)
    ttl_ms = claim.job.result_ttl_ms if claim.job and result else 0
    return Settlement(
        claim=claim,
        decision=decision,
        attempts=attempts,
        result=result,
        ttl_ms=ttl_ms,
        run_outcome=_run_outcome(claim, outcome, decision),
    )


def _run_outcome(claim: Claim, outcome: Outcome, decision: Decision) -> RunOutcome | None:
    """Return what a recurring schedule keeps of its job that is acknowledged, but was not done; None for others."""
    if claim.job is None or claim.job.occurrence is None:
        return None
    if decision.action is Action.CANCEL:
        return RunOutcome.CANCELLED
    state = _state_unrun(decision, outcome)
    return None if state is None else RunOutcome.EXPIRED if state is State.EXPIRED else RunOutcome.SKIPPED


def _result(claim: Claim, outcome: Outcome, decision: Decision, worker: str) -> bytes:
    """Return the result to keep of a job that ends here; b"" if it does not, or keeps none."""
    if claim.job is None or not claim.job.result_ttl_ms:
        return b""
    ended_us = _ended_us(claim, outcome)
    if state := _state_unrun(decision, outcome):
        return Result(state=state, ended_us=ended_us).pack()
    started_us = _started_us(claim, outcome, ended_us, claim.job.kind)
    ran = Result(state=State.DONE, ended_us=ended_us, started_us=started_us, worker=worker)
    if decision.action is Action.CANCEL:
        return replace(ran, state=State.CANCELLED).pack()
    return b"" if outcome.result is None else ran.pack(value=outcome.result)


def _uncounted(claim: Claim, outcome: Outcome) -> AttemptHistory:
    """Return the history after a run that is no attempt."""
    match outcome.kind:
        case OutcomeKind.SNOOZED:
            return claim.attempts.snoozed()
        case OutcomeKind.INTERRUPTED:
            return claim.attempts.cut_short()
        case _:
            return claim.attempts.waited(outcome.kind, now_us=claim.claimed_us)


def emit_all(
    settled: Iterable[tuple[Settlement, Outcome]],
    *,
    lost: frozenset[bytes],
    metrics: MetricsBuffer,
    endings: EndingBuffer = NO_ENDINGS,
    emit: Emit = emitter.emit,
) -> None:
    """Count settled attempts, note jobs that ended, and emit signals and log lines.

    `lost` has the leases that were lost.
    """
    emissions: list[Emission] = []
    has_receiver = bool(job_finished.receivers)
    with done_log.choosing() as has_line:
        for settlement, outcome in settled:
            claim, decision = settlement.claim, settlement.decision
            if claim.lease in lost:
                emissions.append(partial(_log_lost_lease, claim, outcome))
            elif decision.action is not Action.RELEASE:
                if name := _counter(decision, outcome):
                    _count(settlement, outcome, name, metrics, endings)
                # Most attempts succeed, and nobody receives their signals. An emission of each would cost as much as
                # the rest of a short job.
                has_own_line = outcome.kind is not OutcomeKind.SUCCEEDED or has_line(outcome.run_us)
                if has_own_line or has_receiver or (claim.job and claim.job.kind.has_hooks):
                    emissions.append(partial(_emit, settlement, outcome, has_own_line=has_own_line))
    if emissions:
        emit(emissions)


def _counter(decision: Decision, outcome: Outcome) -> str:
    """Return the counter of the metrics that an attempt adds to, or ""."""
    if decision is ACKNOWLEDGE and outcome.kind is OutcomeKind.SUCCEEDED:
        # Most attempts; saves as much as it costs to note that the job ended.
        return "done"
    if state := _state_unrun(decision, outcome):
        return state.value
    if decision.counted:
        return _COUNTED[decision.action]
    return "snoozed" if outcome.kind is OutcomeKind.SNOOZED else ""


def _state_unrun(decision: Decision, outcome: Outcome) -> State | None:
    """Return how a job ended that did not run, and is no dead letter: EXPIRED or DROPPED; None for others."""
    return _UNRUN.get(outcome.kind) if decision.action is Action.ACKNOWLEDGE else None


def _log_lost_lease(claim: Claim, outcome: Outcome) -> None:
    fields = job_fields(claim.id, claim.job, claim.attempt)
    logger.warning("Job %s: lease lost, its outcome (%s) was refused", claim.id, outcome.kind, extra=fields)


def _emit(settlement: Settlement, outcome: Outcome, *, has_own_line: bool) -> None:
    claim, decision = settlement.claim, settlement.decision
    task = registry.find(claim.job.task) if claim.job else None
    facts = {"job_id": claim.id, "job": claim.job, "attempt": claim.attempt}
    error = None if decision.action is Action.ACKNOWLEDGE else exception_of(outcome, decision, task)
    if state := _state_unrun(decision, outcome):
        announce(_SIGNALS_UNRUN[state], task, job_id=claim.id, job=claim.job)
    elif outcome.kind is not OutcomeKind.EXPIRED:
        facts_of_end = {**facts, "outcome": outcome, "decision": decision}
        if has_own_line:
            announce(job_finished, task, error=error, **facts_of_end)
        else:
            send(job_finished, task, **facts_of_end)
    if decision.action is Action.DEAD_LETTER:
        announce(job_dead_lettered, task, error=error, **facts, reason=f"{outcome.kind}\n{outcome.error}")
    if claim.job and task is not None and decision.action is not Action.RETRY:
        result = None if decision.action is Action.DEAD_LETTER else settlement.result
        task.on_finished(claim.job, attempts=settlement.attempts, stored=result, error=error)


def _ended_us(claim: Claim, outcome: Outcome) -> int:
    # When the code ended. The outcome may reach Redis minutes later, after an outage.
    return _at_us(claim, monotonic()) if outcome.began is None else _at_us(claim, outcome.began) + outcome.run_us


def _started_us(claim: Claim, outcome: Outcome, ended_us: int, kind: TaskKind) -> int:
    # A result keeps the `started_at` that was visible while the job ran.
    return claim.claimed_us if kind.starts_when_claimed else ended_us - outcome.run_us


def _at_us(claim: Claim, moment: float) -> int:
    """Convert a monotonic moment to Redis's clock: Redis's time of the claim plus the time since then here."""
    return claim.claimed_us + int((moment - claim.received_at) * SECOND_US)


def _count(settlement: Settlement, outcome: Outcome, name: str, metrics: MetricsBuffer, endings: EndingBuffer) -> None:
    claim, began = settlement.claim, outcome.began
    task, queue, run_us, lag_us = claim.job.task if claim.job else "", claim.queue, None, None
    if began is not None:
        run_us, lag_us = outcome.run_us, _at_us(claim, began) - claim.due_us
    metrics.count_attempt(name, queue=queue, task=task, lag_us=lag_us, run_us=run_us)
    if name in _ENDED and endings.is_on:
        moment_us, number = claim.due_us if began is not None else _ended_us(claim, outcome), claim.attempts.ended
        endings.add((claim.lease, task, queue, number, name, moment_us, lag_us, run_us, settlement.ttl_ms, ""))
