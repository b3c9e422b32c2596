"""Signals of a job's life, and the log sentence of each.

The sender of each signal is the task, or None if it is not registered in this process. An exception of a receiver is
logged and changes nothing.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any

from django.dispatch import Signal

from django_delayq.logs import escape, job_fields, logger

#: Longest text of one argument in a log line, and longest line, in characters.
_LONGEST_ARGUMENT, _LONGEST_LINE = 1_000, 4_000
#: Characters of the line of an error in a log line, and half of them.
_LONGEST_ERROR = 400
_HALF = _LONGEST_ERROR // 2

#: Sent by the enqueueing process after Redis accepted the job: `job`.
job_enqueued = Signal()
#: Sent in the worker before the task's code: `job`, `attempt`, `recovered`.
job_started = Signal()
#: Sent in the worker after the attempt was settled: `job_id`, `job`, `attempt`, `outcome`, `decision`.
job_finished = Signal()
#: Sent in the worker or dispatcher after a job became a dead letter: `job_id`, `job` (None if it cannot be read),
#: `attempt`, `reason`.
job_dead_lettered = Signal()
#: Sent in the worker after a job ended as expired: `job_id`, `job`. A dead letter has the signal above instead.
job_expired = Signal()
#: Sent in the worker after a job ended as dropped, since a limit or schedule kept it from beginning: `job_id`, `job`.
job_dropped = Signal()

# Django's own lock is not reentrant: an operating-system signal handler that enqueues while its thread enqueues would
# wait forever.
for _signal in (job_enqueued, job_started, job_finished, job_dead_lettered, job_expired, job_dropped):
    _signal.lock = threading.RLock()  # type: ignore[assignment]


def has_listener(signal: Signal, level: int) -> bool:
    """Whether the signal has a receiver, or the log records sentences of this level."""
    return bool(signal.receivers) or logger.isEnabledFor(level)


def announce(signal: Signal, sender: Any, *, error: BaseException | None = None, **facts: Any) -> None:
    """Log the sentence of a signal and send the signal; exceptions of receivers are logged.

    `error` goes into the record as its `exc_info`, not to receivers. The sentences are not receivers: finding those
    would cost each job 9 µs.
    """
    _SENTENCES[signal](error=error, **facts)
    send(signal, sender, **facts)


def send(signal: Signal, sender: Any, **facts: Any) -> None:
    """Send any signal; exceptions of its receivers are logged."""
    if not signal.receivers:
        return
    if any(is_async for *_, is_async in signal.receivers) and _in_loop():
        # Inside a running loop, no code can wait for an asynchronous receiver.
        with ThreadPoolExecutor(1) as executor:
            executor.submit(copy_context().run, partial(_send, signal, sender, **facts)).result()
    else:
        _send(signal, sender, **facts)


def _send(signal: Signal, sender: Any, **facts: Any) -> None:
    try:
        responses = signal.send_robust(sender, **facts)
    except BaseException:
        # In the main thread it is Ctrl-C, or how a server ends.
        if threading.current_thread() is threading.main_thread():
            raise
        logger.exception("A receiver of a signal raised a BaseException; later receivers were not called")
        return
    for receiver, response in responses:
        if isinstance(response, Exception):
            name = getattr(receiver, "__qualname__", type(receiver).__qualname__)
            logger.error("A receiver of a signal failed: %s", name, exc_info=response)


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _log(level: int, text: str, *more: Any, job_id: str, job: Any, attempt: int | None, error: Any = None) -> None:
    """Log a sentence about a job, whose beginning is the same in all of them."""
    if logger.isEnabledFor(level):
        task, queue = (job.task, job.queue) if job else ("?", "?")
        fields = job_fields(job_id, job, attempt)
        # The record names the line of the caller, one frame up.
        logger.log(
            level, f"Job %s of %r in %r {text}", job_id, task, queue, *more, exc_info=error, extra=fields, stacklevel=3
        )


def _log_enqueued(job: Any, **_: Any) -> None:
    # Before the id becomes text, which every job would pay for.
    if logger.isEnabledFor(logging.DEBUG):
        _log(logging.DEBUG, "enqueued", job_id=job.id, job=job, attempt=None)


def _log_started(job: Any, attempt: int, **_: Any) -> None:
    if logger.isEnabledFor(logging.DEBUG):
        _log(logging.DEBUG, "started, attempt %d", attempt, job_id=job.id, job=job, attempt=attempt)


def _log_finished(job_id: str, job: Any, attempt: int, outcome: Any, decision: Any, error: Any, **_: Any) -> None:
    about = {"job_id": job_id, "job": job, "attempt": attempt}
    if outcome.kind == "succeeded":
        _log(logging.INFO, "done in %.3f s, attempt %d", outcome.run_us / 1_000_000, attempt, **about)
    elif decision.action == "retry":
        seconds, reason = decision.delay_us / 1_000_000, last_line(outcome.error)
        if outcome.kind == "snoozed":
            text = "snoozed in attempt %d; again in %.1f s: %s"
            _log(logging.INFO, text, attempt, seconds, reason, **about, error=error)
        elif not decision.counted and outcome.kind != "interrupted" and seconds > 1:
            # It waits for a worker that can run it. The first wait, of a second, was a warning.
            _log(logging.DEBUG, "still waits (%s), next in %.1f s", outcome.kind, seconds, **about)
        else:
            text = "%s, attempt %d; next in %.1f s: %s"
            _log(logging.WARNING, text, outcome.kind, attempt, seconds, reason, **about, error=error)
    elif decision.action == "cancel":
        _log(logging.INFO, "stopped, attempt %d; it ends as cancelled", attempt, **about)


def _log_dead_lettered(job_id: str, job: Any, attempt: int, reason: str, error: Any, **_: Any) -> None:
    text = "is dead after attempt %d: %s"
    _log(logging.ERROR, text, attempt, last_line(reason), job_id=job_id, job=job, attempt=attempt, error=error)


def _log_dropped(job_id: str, job: Any, **_: Any) -> None:
    cause = "a limit" if job is None or job.occurrence is None else "its recurring schedule, or a limit,"
    _log(logging.INFO, "dropped, since %s kept it from beginning", cause, job_id=job_id, job=job, attempt=None)


def _log_expired(job_id: str, job: Any, **_: Any) -> None:
    _log(logging.WARNING, "expired before it could begin", job_id=job_id, job=job, attempt=None)


def last_line(text: str) -> str:
    """Return the last line of an error, shortened, and quoted so that no user's text can forge a log line.

    Its middle is left out: an error names its subject first, and ends with its cure and the address of a page.
    """
    line = (text.strip().splitlines() or [""])[-1]
    return f"{line if len(line) <= _LONGEST_ERROR else f'{line[:_HALF]}…{line[1 - _HALF :]}'!r}"


def keep_to_one_line(record: logging.LogRecord) -> bool:
    """Escape the control characters of a record's message and traceback, and shorten the message.

    A filter of the package's logger. Names of tasks, queues and workers come from Redis, texts of errors from servers
    and users. None of them may begin a new line or move a terminal's cursor, whatever the project's formatter.
    """
    if isinstance(record.args, tuple):
        record.args = tuple(_shorten(argument) for argument in record.args)
    message = record.getMessage()
    if not message.isprintable() or len(message) > _LONGEST_LINE:
        record.msg, record.args = escape(message)[:_LONGEST_LINE], None
    if record.exc_info:
        # A formatter of the standard library takes this text and makes none of its own.
        record.exc_text = _TRACEBACKS.formatException(record.exc_info)
    return True


class LogFormatter(logging.Formatter):
    """Format as usual, but indent tracebacks, so that none of their lines looks like a record."""

    def formatException(self, ei: Any) -> str:
        """Return the traceback with each line indented, shortened, and its control characters escaped."""
        try:
            text = super().formatException(ei)
        except BaseException as error:
            # The __str__() of the exception, or its metaclass, is code of the project.
            text = f"(the traceback cannot be printed: {type(error).__name__})"
        return "\n".join(f"    {escape(line[:_LONGEST_LINE])[:_LONGEST_LINE]}" for line in text.split("\n"))


_TRACEBACKS = LogFormatter()


def _shorten(argument: Any) -> Any:
    text = str(argument) if isinstance(argument, str | Exception) else ""
    return text[:_LONGEST_ARGUMENT] + "…" if len(text) > _LONGEST_ARGUMENT else argument


logger.logger.addFilter(keep_to_one_line)
_SENTENCES: dict[Signal, Callable[..., None]] = {
    job_enqueued: _log_enqueued,
    job_started: _log_started,
    job_finished: _log_finished,
    job_dead_lettered: _log_dead_lettered,
    job_expired: _log_expired,
    job_dropped: _log_dropped,
}
