"""Execution: run the task of a claim, inside its middlewares; returns an outcome, never raises."""

import asyncio
import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from dataclasses import replace
from functools import cache, partial
from time import monotonic
from typing import Any, NamedTuple

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, async_to_sync, sync_to_async

from django_delayq import runtime
from django_delayq.clock import SECOND_US
from django_delayq.conf.settings import get_config
from django_delayq.exceptions import TaskTimeout, TransactionLeftOpen
from django_delayq.job.job import Claim, Job
from django_delayq.job.outcome import Action, Outcome, OutcomeKind, decide, kind_of_fault
from django_delayq.logs import job_fields, logger
from django_delayq.middleware.chain import get_chain
from django_delayq.middleware.job import MiddlewareJob
from django_delayq.middleware.job_thread import in_job_thread
from django_delayq.processes import database
from django_delayq.processes.fork_safety import exit_if_child_of
from django_delayq.processes.idle_connections import close_while_idle
from django_delayq.recurring.schedule import Schedule
from django_delayq.signals import announce, has_listener, job_started
from django_delayq.store.digests import schedule_id
from django_delayq.store.store import get_store
from django_delayq.task import context as current
from django_delayq.task import registry
from django_delayq.worker.failure import clear_variables
from django_delayq.worker.outcomes import expired, failed, judged, outcome_of
from django_delayq.worker.time_limit import TimeLimit


class Caller(NamedTuple):
    """How user code is called: one for threads, one for event loops."""

    #: Run the task of a claim.
    run: Callable[[Any, Claim, Job], Awaitable[Any]]
    #: Call a plain function, which may wait.
    call: Callable[..., Awaitable[Any]]
    #: Clean the database connections of the job up.
    clean: Callable[[], Awaitable[TransactionLeftOpen | None]]


#: Tasks whose `retry_delay` failed: each is logged once.
_wrong_delays: set[str] = set()


def run(claim: Claim, link: current.RunLink | None = None) -> Outcome:
    """Run the task of a claim in this thread and return its outcome.

    Each run has a context of its own, so language, time zone and context variables start fresh. Database connections
    are cleaned up before and after.
    """
    return Context().run(_run_sync, _run_claim(claim, link, _IN_THREAD))


async def run_async(claim: Claim, link: current.RunLink | None = None) -> Outcome:
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

            return await _run_claim(claim, link, Caller(_run_in_loop, _call_from_loop, clean))
    except BaseException as error:
        # Cancelled at its hard limit, when nothing waits for this any more; or the code around the task failed.
        return timed(failed(error, claim.job), began)


def forward(claim: Claim, accept: Callable[[dict[str, Any]], object], link: current.RunLink | None = None) -> Outcome:
    """Pass the job of a claim to a user's function, which gives it to another system; an exception is a failed attempt.

    The task need not be registered here. `accept` is called with a dict of `id`, `task`, `queue`, `priority`, `args`,
    `kwargs`, `attempt` and `due_us`, and `context` if middlewares put one in. It has no `current_job()`, so nothing is
    done with `link`.
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
        outcome = outcome_of(None, claim, job, error)
    try:
        left_open = database.clean()
        if left_open and outcome.kind is OutcomeKind.SUCCEEDED:
            outcome = failed(left_open, job)
        return timed(outcome, began)
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


async def _run_claim(claim: Claim, link: current.RunLink | None, caller: Caller) -> Outcome:
    job = claim.job
    if job is None:
        return Outcome(kind=kind_of_fault(claim.fault), error=str(claim.fault))
    began = monotonic()
    if job.expiry is not None and claim.has_expired(began):
        return expired(claim)
    try:
        task = registry.find(job.task)
        if task is None:
            return Outcome(kind=OutcomeKind.UNKNOWN_TASK, error=registry.why_unknown(job.task))
        # In no variable: this frame, too, can be reached from the traceback of an exception in the outcome.
        return timed(await _run(task, claim, link, job, caller), began)
    except BaseException as error:
        # A time limit that expired after the task had ended, or a failing receiver of a signal.
        return timed(failed(error, job), began)


async def _run(task: Any, claim: Claim, link: current.RunLink | None, job: Job, caller: Caller) -> Outcome:
    current.set_current_run(claim, link)
    await caller.clean()
    here = os.getpid()
    try:
        try:
            if has_listener(job_started, logging.DEBUG):
                announce(job_started, task, job=job, attempt=claim.attempt, recovered=claim.attempts.recovered)
            value = await caller.run(task, claim, job)
            exit_if_child_of(here)
            outcome = _SUCCEEDED if job.result_ttl_us is None else _with_result(task, value)
        except BaseException as error:
            exit_if_child_of(here, error)
            # BaseException: sys.exit() in a task ends the task, not the worker.
            database.assume_opened()
            outcome = outcome_of(task, claim, job, error)
        if outcome.raised is not None:
            # After the `except` above: an error of `retry_delay` must not have the task's own as its context.
            outcome = await _with_delay(outcome, task, claim, job, caller)
    finally:
        left_open = await caller.clean()
    try:
        if not left_open or outcome.kind is not OutcomeKind.SUCCEEDED:
            return outcome
        outcome = await _with_delay(failed(left_open, job), task, claim, job, caller)
        await caller.clean()
        return outcome
    finally:
        # This frame is in the traceback of `outcome.raised`. A circle would keep the variables of the task in memory.
        del outcome


def _with_result(task: Any, value: Any) -> Outcome:
    try:
        return Outcome(kind=OutcomeKind.SUCCEEDED, result=task.serialize_result(value))
    except (TypeError, ValueError, RecursionError) as error:
        return replace(failed(error), kind=OutcomeKind.RESULT_NOT_SERIALIZABLE)


def _run_here(task: Any, claim: Claim, job: Job) -> Awaitable[Any]:
    # Not async: a StopIteration of the task would leave a coroutine as a RuntimeError.
    chain = get_chain(job.backend)
    return _ended(_run_task(task, claim, job) if chain is None else chain.run(_wrapped(task, claim, job)))


def _call_here(func: Any, *args: Any) -> Awaitable[Any]:
    return _ended(func(*args))


async def _ended(value: Any) -> Any:
    return value


async def _run_in_loop(task: Any, claim: Claim, job: Job) -> Any:
    chain = get_chain(job.backend)
    return await (_run_task_in_loop(task, claim, job) if chain is None else chain.arun(_wrapped(task, claim, job)))


def _call_from_loop(func: Any, *args: Any) -> Awaitable[Any]:
    return in_job_thread(func)(*args)


def _wrapped(task: Any, claim: Claim, job: Job) -> MiddlewareJob:
    calls = partial(_run_task, task, claim, job), partial(_run_task_in_loop, task, claim, job)
    will_retry, find_schedule = partial(_will_retry, task, claim, job), partial(_find_schedule, job)
    return MiddlewareJob(
        job,
        *calls,
        attempt=claim.attempt,
        times_us=(claim.due_us, claim.claimed_us),
        will_retry=will_retry,
        find_schedule=find_schedule,
    )


def _will_retry(task: Any, claim: Claim, job: Job, error: BaseException) -> bool:
    """Return whether another attempt follows one that ended with this exception.

    It does after a cancellation: by the stop of a worker, which costs no attempt, or by a hard limit.
    """
    running = current.current_job()
    if running is not None and running.should_stop:
        return False
    if isinstance(error, asyncio.CancelledError):
        return True
    outcome = judged(task, claim, job, error)
    decision = decide(outcome, job.retry, attempt=claim.attempt, jitter=0, waits_on_mismatch=job.kind.waits_on_mismatch)
    return decision.action is Action.RETRY


def _find_schedule(job: Job) -> Schedule | None:
    """Return the recurring schedule of a job; None if there is none. One round trip."""
    if job.occurrence is None:
        return None
    id = schedule_id(job.task, job.occurrence.schedule)
    [found] = get_store(job.backend).schedules(job.shard).find([id])
    return found.definition.schedule if found and found.definition else None


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
    return await (_bounded(func, job) if is_async(func) else _call_from_loop(_call, func, job))


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


async def _with_delay(outcome: Outcome, task: Any, claim: Claim, job: Job, caller: Caller) -> Outcome:
    """Return the outcome with the delay that the task's `retry_delay` computes, if it has one and is tried again."""
    decision = decide(outcome, job.retry, attempt=claim.attempt, jitter=0)
    if outcome.delay_us is not None or decision.action is not Action.RETRY or not decision.counted:
        return outcome
    compute = task.run_options(job).retry_delay
    if compute is None:
        return outcome
    # It may query: not inside what the task began and did not end, nor on a connection that a time limit interrupted.
    await caller.clean()
    delay_us = await caller.call(_computed_us, compute, task, claim, job, outcome.raised)
    return replace(outcome, delay_us=delay_us)


def _computed_us(compute: Any, task: Any, claim: Claim, job: Job, error: BaseException) -> int | None:
    """Return the delay in µs that a task's `retry_delay` computes; None for that of the policy. Raises nothing."""
    try:
        delay = compute(claim.attempt, error)
        return None if delay is None else get_config(job.backend).tasks.check_time(delay=delay)[0] or 0
    except BaseException as wrong:
        if job.task not in _wrong_delays:
            _wrong_delays.add(job.task)
            if task.sensitive:
                clear_variables(wrong)
            fields = job_fields(claim.id, job, claim.attempt)
            logger.error(
                "The retry_delay of %s failed; the policy of its jobs decides", job.task, exc_info=wrong, extra=fields
            )
        return None


async def _clean_here() -> TransactionLeftOpen | None:
    return database.clean() if runtime.current().clean_connections else None


def timed(outcome: Outcome, began: float) -> Outcome:
    """Return the outcome with the length of a run that began at `began` (monotonic) and ends now."""
    run_us = int((monotonic() - began) * SECOND_US)
    if outcome is _SUCCEEDED:
        # The usual outcome, at a quarter of the cost of replace().
        return Outcome(kind=OutcomeKind.SUCCEEDED, run_us=run_us, began=began)
    return replace(outcome, run_us=run_us, began=began)


_IN_THREAD = Caller(_run_here, _call_here, _clean_here)


#: Cached, because each job needs it.
is_async = cache(inspect.iscoroutinefunction)
_SUCCEEDED = Outcome(kind=OutcomeKind.SUCCEEDED)
