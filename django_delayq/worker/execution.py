"""Execution: run the task of a claim. The only file that calls user code; returns an outcome, never raises."""

import asyncio
import inspect
import os
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from dataclasses import replace
from functools import cache, partial
from time import monotonic
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, async_to_sync, sync_to_async

from django_delayq import runtime
from django_delayq.clock import SECOND_US, moment, timedelta_of
from django_delayq.conf.settings import get_config
from django_delayq.exceptions import (
    DeadLetterNow,
    DelayQError,
    RetryLater,
    Snooze,
    TaskTimeout,
    TransactionLeftOpen,
)
from django_delayq.job.job import Claim, Job
from django_delayq.job.outcome import Action, Outcome, OutcomeKind, decide, kind_of_fault
from django_delayq.job.retry import class_path
from django_delayq.logs import job_fields, logger
from django_delayq.middleware.chain import MiddlewareJob, get_chain
from django_delayq.processes import database, process_limits
from django_delayq.processes.fork_safety import exit_if_child_of
from django_delayq.processes.idle_connections import close_while_idle
from django_delayq.signals import announce, job_started
from django_delayq.task import context as current
from django_delayq.task import registry
from django_delayq.worker.time_limit import TimeLimit

#: How user code is called, and how database connections are cleaned up: one each for threads and for event loops.
Call = Callable[[Any, Claim, Job], Awaitable[Any]]
Clean = Callable[[], Awaitable[TransactionLeftOpen | None]]
#: Most characters of a traceback in an outcome; the stored one is shorter.
_MAX_ERROR = 64 * 1024
#: Tasks whose `retry_delay` failed: each is logged once.
_wrong_delays: set[str] = set()


def run(claim: Claim, attempt: current.Attempt | None = None) -> Outcome:
    """Run the task of a claim in this thread and return its outcome.

    Each run has a context of its own, so language, time zone and context variables start fresh. Database connections
    are cleaned up before and after.
    """
    return Context().run(_run_sync, _attempt(claim, attempt, _call_here, _clean_here))


async def run_async(claim: Claim, attempt: current.Attempt | None = None) -> Outcome:
    """Run the task of a claim in this event loop and return its outcome; the caller provides the context.

    The calls of the task through `sync_to_async` run in one thread of the job's own, as in a Django request.
    """
    began = monotonic()
    try:
        async with ThreadSensitiveContext() as context:
            close_while_idle(context)

            async def clean() -> TransactionLeftOpen | None:
                if context not in SyncToAsync.context_to_thread_executor:
                    return None
                # The thread ends with the job.
                return await sync_to_async(database.clean)(close=True)

            return await _attempt(claim, attempt, _call_in_loop, clean)
    except BaseException as error:
        # Cancelled at its hard limit, when nothing waits for this any more; or the code around the task failed.
        return timed(failed(error, claim.job), began)


def forward(
    claim: Claim, accept: Callable[[dict[str, Any]], object], attempt: current.Attempt | None = None
) -> Outcome:
    """Pass the job of a claim to a user's function, which gives it to another system; an exception is a failed attempt.

    The task need not be registered here. `accept` is called with a dict of `id`, `task`, `queue`, `priority`, `args`,
    `kwargs`, `attempt` and `due_us`, and `context` if middlewares put one in. It has no `current_job()`, so nothing is
    done with `attempt`.
    """
    job = claim.job
    if job is None:
        return Outcome(kind=kind_of_fault(claim.fault), error=str(claim.fault))
    if job.expiry is not None and claim.has_expired(monotonic()):
        return expired(claim)
    facts = {
        **{"id": job.id, "task": job.task, "queue": claim.queue, "priority": job.priority},
        **{"args": job.args, "kwargs": job.kwargs, "attempt": claim.attempt, "due_us": claim.due_us},
        **({"context": job.context} if job.context else {}),
    }
    began, outcome = monotonic(), _SUCCEEDED
    database.clean()
    try:
        Context().run(accept, facts)
    except BaseException as error:
        database.assume_opened()
        outcome = _outcome_of(None, claim, job, error)
    try:
        return timed(_unless(database.clean(), outcome, None, claim), began)
    finally:
        # As in `_run()`.
        del outcome


def _run_sync(coroutine: Coroutine[Any, Any, Outcome]) -> Outcome:
    """Run a coroutine that never waits, so that threads and event loops share one code path."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    raise RuntimeError("a coroutine that runs in a thread must not wait")


async def _attempt(claim: Claim, attempt: current.Attempt | None, call: Call, clean: Clean) -> Outcome:
    job = claim.job
    if job is None:
        return Outcome(kind=kind_of_fault(claim.fault), error=str(claim.fault))
    began = monotonic()
    if job.expiry is not None and claim.has_expired(began):
        return expired(claim)
    try:
        task = registry.find(job.task)
        if task is None:
            return Outcome(
                kind=OutcomeKind.UNKNOWN_TASK, error=f"No task is registered as {job.task!r} in this worker."
            )
        # In no variable: this frame, too, can be reached from the traceback of an exception in the outcome.
        return timed(await _run(task, claim, attempt, job, call, clean), began)
    except BaseException as error:
        # A time limit that expired after the task had ended, or a failing receiver of a signal.
        return timed(failed(error, job), began)


async def _run(task: Any, claim: Claim, attempt: current.Attempt | None, job: Job, call: Call, clean: Clean) -> Outcome:
    current.set_current_claim(claim, attempt)
    await clean()
    here = os.getpid()
    try:
        announce(job_started, task, job=job, attempt=claim.attempt, recovered=claim.attempts.recovered)
        value = await call(task, claim, job)
        exit_if_child_of(here)
        outcome = _SUCCEEDED if job.result_ttl_us is None else _with_result(task, value)
    except BaseException as error:
        exit_if_child_of(here, error)
        # BaseException: sys.exit() in a task ends the task, not the worker.
        database.assume_opened()
        outcome = _outcome_of(task, claim, job, error)
    finally:
        left_open = await clean()
    try:
        return _unless(left_open, outcome, task, claim)
    finally:
        # This frame is in the traceback of `outcome.raised`. A circle would keep the variables of the task in memory.
        del outcome


def _unless(left_open: TransactionLeftOpen | None, outcome: Outcome, task: Any, claim: Claim) -> Outcome:
    """Return the outcome, or a failure if the code succeeded but left a transaction open, which was rolled back."""
    if not left_open or outcome.kind is not OutcomeKind.SUCCEEDED:
        return outcome
    return _with_delay(failed(left_open, claim.job), task, claim, left_open)


def _with_result(task: Any, value: Any) -> Outcome:
    try:
        return Outcome(kind=OutcomeKind.SUCCEEDED, result=task.serialize_result(value))
    except (TypeError, ValueError, RecursionError) as error:
        return replace(failed(error), kind=OutcomeKind.RESULT_NOT_SERIALIZABLE)


async def _call_here(task: Any, claim: Claim, job: Job) -> Any:
    chain = get_chain(job.backend)
    return _run_task(task, claim, job) if chain is None else chain.run(_wrapped(task, claim, job))


async def _call_in_loop(task: Any, claim: Claim, job: Job) -> Any:
    chain = get_chain(job.backend)
    return await (_run_task_in_loop(task, claim, job) if chain is None else chain.arun(_wrapped(task, claim, job)))


def _wrapped(task: Any, claim: Claim, job: Job) -> MiddlewareJob:
    calls = partial(_run_task, task, claim, job), partial(_run_task_in_loop, task, claim, job)
    return MiddlewareJob(job, *calls, attempt=claim.attempt)


def _run_task(task: Any, claim: Claim, job: Job) -> Any:
    """Call the function of a task in this thread, unless its `already_done` knows that an earlier run did the work.

    Both are inside the middlewares: what they set up, such as a schema, is for both.
    """
    if claim.attempts.recovered:
        check = task.run_options(job).already_done
        if check is not None and _call(check, job):
            return None
    return _call(task.callable, task.before_run(claim, job))


async def _run_task_in_loop(task: Any, claim: Claim, job: Job) -> Any:
    if claim.attempts.recovered:
        check = task.run_options(job).already_done
        if check is not None and await _await(check, job):
            return None
    return await _await(task.callable, task.before_run(claim, job))


async def _await(func: Any, job: Job) -> Any:
    """Call a function in an event loop; a plain one, which may read the database, in the thread of the job."""
    if is_async(func):
        return await _bounded(func, job)
    return await sync_to_async(_call, thread_sensitive=True)(func, job)


def _call(func: Any, job: Job) -> Any:
    if is_async(func):
        return async_to_sync(_bounded)(func, job)
    if job.timeout_us is None:
        result = func(*job.args, **job.kwargs)
    else:
        limit = TimeLimit(job.timeout_us)
        try:
            with limit:
                result = func(*job.args, **job.kwargs)
        finally:
            if limit.expired:
                database.invalidate()
    if inspect.iscoroutine(result):
        # A decorator hides that the function is a coroutine function.
        return async_to_sync(_bounded)(lambda: result, replace(job, args=[], kwargs={}))
    return result


async def _bounded(func: Any, job: Job) -> Any:
    limit = None if job.timeout_us is None else job.timeout_us / SECOND_US
    scope = asyncio.timeout(limit)
    try:
        async with scope:
            return await func(*job.args, **job.kwargs)
    except TimeoutError as error:
        if scope.expired():
            raise TaskTimeout(f"The task ran longer than its timeout of {limit:g} s.") from error
        raise
    finally:
        # It refers to the asyncio task, whose result has the exception, whose traceback has this frame.
        del scope


def _outcome_of(task: Any, claim: Claim, job: Job, error: BaseException) -> Outcome:
    runtime.current().on_task_exception(error)
    if isinstance(error, RetryLater | Snooze):
        try:
            delay_us = _requested_us(error, claim, job)
        except (DelayQError, TypeError) as wrong:
            return failed(wrong, job)
        kind = OutcomeKind.SNOOZED if isinstance(error, Snooze) else OutcomeKind.RETRY_REQUESTED
        requested = Outcome(kind=kind, error=_text(error), delay_us=delay_us, exception=_path(error), raised=error)
        return _with_delay(requested, task, claim, error)
    if isinstance(error, DeadLetterNow):
        return Outcome(kind=OutcomeKind.REJECTED, error=_text(error), exception=_path(error), raised=error)
    if task is not None and isinstance(error, TypeError):
        try:
            task.check_fit(job.args, job.kwargs)
        except TypeError as unfit:
            error_text = f"The stored arguments do not fit {job.task}: {unfit}"
            return Outcome(kind=OutcomeKind.ARGUMENTS_MISMATCH, error=error_text, exception=_path(unfit), raised=error)
    return _with_delay(failed(error, job), task, claim, error)


def _with_delay(outcome: Outcome, task: Any, claim: Claim, error: BaseException) -> Outcome:
    """Return the outcome with the delay that the task's `retry_delay` computes, if it has one and is tried again."""
    job = claim.job
    if task is None or job is None or outcome.delay_us is not None:
        return outcome
    if decide(outcome, job.retry, attempt=claim.attempt, jitter=0).action is not Action.RETRY:
        return outcome
    try:
        retry_delay = task.run_options(job).retry_delay
        delay = None if retry_delay is None else retry_delay(claim.attempt, error)
        if delay is not None:
            delay_us = get_config(job.backend).tasks.check_time(delay=delay)[0] or 0
            return replace(outcome, delay_us=delay_us)
    except BaseException as wrong:
        if job.task not in _wrong_delays:
            _wrong_delays.add(job.task)
            fields = job_fields(claim.id, job, claim.attempt)
            text = "The retry_delay of %s failed; the policy of its jobs decides"
            logger.error(text, job.task, exc_info=wrong, extra=fields)
    return outcome


def _requested_us(error: RetryLater | Snooze, claim: Claim, job: Job) -> int | None:
    """Return the delay that the task requests in µs, or None. Raises `DelayQError` and TypeError."""
    delay, until = error.delay, None
    if isinstance(error, Snooze):
        delay, until = timedelta_of(error.units, of="Snooze") if error.units else delay, error.until  # type: ignore[arg-type]
    elif delay is None:
        return None
    delay_us, due_us = get_config(job.backend).tasks.check_time(delay=delay, at=until, name="until")
    if due_us is None:
        return delay_us or 0
    # By Redis's clock: its time of the claim, and the time since then here.
    return max(0, due_us - claim.claimed_us - int((monotonic() - claim.received_at) * SECOND_US))


def _text(error: BaseException) -> str:
    # A subclass of str may run code of its own wherever it is used, even in the loop of the worker.
    return str.__str__(str(error))


def failed(error: BaseException, job: Job | None = None) -> Outcome:
    """Return the outcome of an attempt of the job that ended with this exception."""
    process_limits.restore_open_files()
    try:
        text = "".join(traceback.format_exception(error))
        if isinstance(error, asyncio.CancelledError):
            text = f"{text}The task was cancelled by code in its event loop, not by a time limit.\n"
    except BaseException as unprintable:
        # The exception's own __str__() or metaclass may raise anything, even SystemExit.
        text = f"{_path(error)} (its traceback cannot be printed: {_path(unprintable)})"
    lineage = _lineage(error) if job is not None and job.retry.has_rules else ()
    return Outcome(
        kind=OutcomeKind.FAILED,
        error=text[-_MAX_ERROR:],
        exception=_path(error),
        lineage=lineage,
        raised=error,
    )


def _lineage(error: BaseException) -> tuple[str, ...]:
    try:
        return tuple(map(class_path, type(error).__mro__))
    except BaseException:
        # Its metaclass raises.
        return (_path(error),)


def expired(claim: Claim) -> Outcome:
    """Return the outcome of a claim whose job has expired: none of its code ran."""
    until = f"The job expired at {moment(claim.expires_us or 0):%Y-%m-%d %H:%M:%S} UTC, before it could begin."
    return Outcome(kind=OutcomeKind.EXPIRED, error=until)


def _path(error: BaseException) -> str:
    try:
        return class_path(type(error))
    except BaseException:
        # Its metaclass raises, so bypass it.
        return str(type.__getattribute__(type(error), "__name__"))


async def _clean_here() -> TransactionLeftOpen | None:
    return database.clean() if runtime.current().clean_connections else None


def timed(outcome: Outcome, began: float) -> Outcome:
    """Return the outcome with the length of a run that began at `began` (monotonic) and ends now."""
    run_us = int((monotonic() - began) * SECOND_US)
    if outcome is _SUCCEEDED:
        # The usual outcome, at a quarter of the cost of replace().
        return Outcome(kind=OutcomeKind.SUCCEEDED, run_us=run_us, began=began)
    return replace(outcome, run_us=run_us, began=began)


#: Cached, because each job needs it.
is_async = cache(inspect.iscoroutinefunction)
_SUCCEEDED = Outcome(kind=OutcomeKind.SUCCEEDED)
