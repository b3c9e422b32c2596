"""Signals of a job's life, and the log sentence that goes with each.

Each signal's sender is the task (None where it is not registered in this process). Receivers must not raise: what they
raise is logged and changes nothing.
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

from django_delayq.log import logger

#: Longest text that one argument puts into a log line, and longest line.
_LONGEST_ARGUMENT, _LONGEST_LINE = 1_000, 4_000

#: Sent by the enqueueing process after Redis accepted the job: `job`.
job_enqueued = Signal()
#: Sent in the worker before the task's code: `job`, `attempt`, `recovered`.
job_started = Signal()
#: Sent in the worker after the attempt was settled: `job_id`, `job`, `attempt`, `outcome`, `decision`.
job_finished = Signal()
#: Sent by worker or dispatcher after a job became a dead letter: `job_id`, `job` (None where unreadable), `attempt`,
#: `reason`.
job_dead_lettered = Signal()

# Django's own lock is not reentrant: a signal handler of the process that enqueues while its thread does would wait for
# ever.
for _signal in (job_enqueued, job_started, job_finished, job_dead_lettered):
    _signal.lock = threading.RLock()  # type: ignore[assignment]


def is_heard(signal: Signal, level: int) -> bool:
    """Whether anybody would hear of it: a receiver, or the log, whose sentence has that level."""
    return bool(signal.receivers) or logger.isEnabledFor(level)


def announce(signal: Signal, sender: Any, **facts: Any) -> None:
    """Log what happened and send its signal; receivers' errors are logged.

    Costs next to nothing where nobody listens: were the sentences receivers, each job would pay 9 µs to find them.
    """
    _SENTENCES[signal](**facts)
    send(signal, sender, **facts)


def send(signal: Signal, sender: Any, **facts: Any) -> None:
    """Send a signal, ours or another's; receivers' errors are logged."""
    if not signal.receivers:
        return
    if any(is_async for *_, is_async in signal.receivers) and _in_loop():
        # Nobody can wait for a coroutine function inside a loop.
        with ThreadPoolExecutor(1) as beside:
            beside.submit(copy_context().run, partial(_send, signal, sender, **facts)).result()
    else:
        _send(signal, sender, **facts)


def _send(signal: Signal, sender: Any, **facts: Any) -> None:
    try:
        answers = signal.send_robust(sender, **facts)
    except BaseException:
        # In the main thread it is Ctrl-C, or a server's own way to end.
        if threading.current_thread() is threading.main_thread():
            raise
        logger.exception("A receiver of a signal raised what is no Exception; those behind it were not called")
        return
    for receiver, answer in answers:
        if isinstance(answer, Exception):
            name = getattr(receiver, "__qualname__", type(receiver).__qualname__)
            logger.error("A receiver of a signal failed: %s", name, exc_info=answer)


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _log_enqueued(job: Any, **_: Any) -> None:
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("Job %s of %r enqueued in %r", job.id, job.task, job.queue)


def _log_started(job: Any, attempt: int, **_: Any) -> None:
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("Job %s of %r in %r started, attempt %d", job.id, job.task, job.queue, attempt)


def _log_finished(job_id: str, job: Any, attempt: int, outcome: Any, decision: Any, **_: Any) -> None:
    if outcome.kind == "succeeded":
        if logger.isEnabledFor(logging.INFO):
            seconds = outcome.run_us / 1_000_000
            logger.info("Job %s of %r in %r done in %.3f s, attempt %d", job_id, job.task, job.queue, seconds, attempt)
    elif decision.action == "retry":
        seconds = decision.delay_us / 1_000_000
        logger.warning(
            "Job %s of %r in %r %s, attempt %d; next in %.1f s: %s",
            *(
                job_id,
                job and job.task,
                job and job.queue,
                outcome.kind,
                attempt,
                seconds,
                last_line(outcome.error),
            ),
        )


def _log_dead_lettered(job_id: str, job: Any, attempt: int, reason: str, **_: Any) -> None:
    task, queue = (job.task, job.queue) if job else ("?", "?")
    logger.error("Job %s of %r in %r is dead after attempt %d: %s", job_id, task, queue, attempt, last_line(reason))


def last_line(text: str) -> str:
    """Return the last line of an error, quoted so that no text of a user can forge a log line, and capped."""
    lines = text.strip().splitlines()
    return f"{lines[-1][:300] if lines else ''!r}"


def keep_to_one_line(record: logging.LogRecord) -> bool:
    """Write out the control characters of a record's message and cap it; for every record of the package's logger.

    Names of tasks, queues and workers come from Redis, texts of errors from servers and users: none may begin a line of
    its own, or move a terminal's cursor.
    """
    if isinstance(record.args, tuple):
        record.args = tuple(_capped(argument) for argument in record.args)
    message = record.getMessage()
    if not message.isprintable() or len(message) > _LONGEST_LINE:
        record.msg, record.args = _printable(message)[:_LONGEST_LINE], None
    return True


class LogFormatter(logging.Formatter):
    """Format as ever, but indent tracebacks: none of their lines can pass for a record."""

    def formatException(self, ei: Any) -> str:
        """Return the traceback with each line indented and its control characters written out."""
        return "\n".join(f"    {_printable(line)}" for line in super().formatException(ei).split("\n"))


def _capped(argument: Any) -> Any:
    text = str(argument) if isinstance(argument, str | Exception) else ""
    return text[:_LONGEST_ARGUMENT] + "…" if len(text) > _LONGEST_ARGUMENT else argument


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


logger.logger.addFilter(keep_to_one_line)
_SENTENCES: dict[Signal, Callable[..., None]] = {
    job_enqueued: _log_enqueued,
    job_started: _log_started,
    job_finished: _log_finished,
    job_dead_lettered: _log_dead_lettered,
}
