"""Execution: run a claim's task; the only file that calls user code. An Outcome comes back, never an exception."""

import asyncio
import inspect
import traceback
from contextvars import Context
from dataclasses import replace
from time import monotonic, perf_counter_ns
from typing import Any

from asgiref.sync import async_to_sync
from django.db import close_old_connections, connections, reset_queries

from django_delayq import current, registry
from django_delayq.clock import SECOND_US
from django_delayq.conf import get_config
from django_delayq.exceptions import DeadLetterNow, DelayQError, RetryLater, TaskTimeout
from django_delayq.job import Claim, Job
from django_delayq.outcome import Ending, Outcome, ending_of
from django_delayq.signals import announce, job_started
from django_delayq.time_limit import TimeLimit

#: Longest traceback handed on; what is stored is cut further.
_MAX_ERROR = 64 * 1024


def run(claim: Claim) -> Outcome:
    """Run the claimed job's task in this thread and tell how it ended.

    Each run has a context of its own, so language, time zone and context variables start fresh, and database
    connections that are broken or too old are closed before and after.
    """
    job = claim.job
    if job is None:
        return Outcome(ending=ending_of(claim.fault), error=str(claim.fault))
    task = registry.find(job.task)
    if task is None:
        return Outcome(ending=Ending.UNKNOWN_TASK, error=f"No task is registered as {job.task!r} in this worker.")
    began, started = monotonic(), perf_counter_ns()
    try:
        outcome = Context().run(_run, task, claim, job)
    except BaseException as error:
        # A time limit that struck while its run was being wound up, or a broken receiver of a signal.
        outcome = _failed(error)
    return Outcome(
        ending=outcome.ending,
        error=outcome.error,
        delay_us=outcome.delay_us,
        run_us=(perf_counter_ns() - started) // 1_000,
        began=began,
    )


def _run(task: Any, claim: Claim, job: Job) -> Outcome:
    current.enter(claim)
    _clean_connections()
    try:
        announce(job_started, task, job=job, attempt=claim.attempt, recovered=claim.attempts.suspect)
        if claim.attempts.suspect and task.already_done is not None and task.already_done(*job.args, **job.kwargs):
            return _SUCCEEDED
        _call(task.code, job)
        return _SUCCEEDED
    except BaseException as error:
        # BaseException: sys.exit() in a task ends the task, not the worker.
        return _judge(task.func, job, error)
    finally:
        _clean_connections()


def _call(func: Any, job: Job) -> None:
    if inspect.iscoroutinefunction(func):
        async_to_sync(_bounded)(func, job)
    else:
        with TimeLimit(job.timeout_us):
            result = func(*job.args, **job.kwargs)
        if inspect.iscoroutine(result):
            # A decorator hid that the function is a coroutine function.
            async_to_sync(_bounded)(_given(result), replace(job, args=[], kwargs={}))


def _given(coroutine: Any) -> Any:
    return lambda: coroutine


async def _bounded(func: Any, job: Job) -> None:
    limit = None if job.timeout_us is None else job.timeout_us / SECOND_US
    try:
        async with asyncio.timeout(limit) as scope:
            await func(*job.args, **job.kwargs)
    except TimeoutError as error:
        if scope.expired():
            raise TaskTimeout(f"The task ran longer than its timeout of {limit:g} s.") from error
        raise


def _judge(func: Any, job: Job, error: BaseException) -> Outcome:
    if isinstance(error, RetryLater):
        try:
            asked_us = get_config().tasks.check_time(delay=error.delay)[0] or 0
            delay_us = None if error.delay is None else asked_us
        except DelayQError as wrong:
            return _failed(wrong)
        return Outcome(ending=Ending.ASKED_RETRY, error=str(error), delay_us=delay_us)
    if isinstance(error, DeadLetterNow):
        return Outcome(ending=Ending.ASKED_DEAD, error=str(error))
    if isinstance(error, TypeError):
        try:
            inspect.signature(func).bind(*job.args, **job.kwargs)
        except TypeError as unfit:
            return Outcome(ending=Ending.UNFIT, error=f"The stored arguments do not fit {job.task}: {unfit}")
    return _failed(error)


def _failed(error: BaseException) -> Outcome:
    try:
        text = "".join(traceback.format_exception(error))
    except Exception as unprintable:
        text = f"{type(error).__name__} (its traceback cannot be printed: {type(unprintable).__name__})"
    return Outcome(ending=Ending.FAILED, error=text[-_MAX_ERROR:])


def _clean_connections() -> None:
    """Do what Django does around a request; nothing where no connection is open."""
    if connections.all(initialized_only=True):
        close_old_connections()
        reset_queries()


_SUCCEEDED = Outcome(ending=Ending.SUCCEEDED)
