"""Logs: the package's logger, and what adds the running job to the project's own records and to events of Sentry.

The logger's calls raise nothing, so that the loops that use it continue. Handlers and filters are the project's own.
One may write to a database that is down or to a closed stderr, or call sys.exit().
"""

import logging
import threading
import traceback
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, TextIO

#: The claim whose task runs in this context, and its `RunLink`. Here, because a record may be logged anywhere.
current_run: ContextVar[tuple[Any, Any] | None] = ContextVar("django_delayq.run", default=None)


class SafeLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that prints the errors of its handlers and filters to standard error, if that is open."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a record. If a handler raises, the record is lost, as with handlers of the standard library."""
        try:
            # The record names the line of the caller, two frames up.
            self.logger.log(level, msg, *args, **{"stacklevel": 2, **kwargs})
        except BaseException as error:
            # In the main thread it may be Ctrl-C, which does not come from the handler.
            if not isinstance(error, Exception) and threading.current_thread() is threading.main_thread():
                raise
            if logging.raiseExceptions:
                with suppress(Exception):
                    traceback.print_exc()


def escape(text: str) -> str:
    """Return text with its unprintable characters escaped: it can neither begin a line nor move a terminal's cursor."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def job_fields(job_id: str, job: Any, attempt: int | None = None) -> dict[str, Any]:
    """Return the fields of a record about a job; task and queue are None if its body cannot be read."""
    task, queue = (escape(job.task), escape(job.queue)) if job else (None, None)
    return {"job_id": job_id, "task": task, "queue": queue, "attempt": attempt}


def _running_job() -> dict[str, Any]:
    claim, _ = current_run.get() or (None, None)
    return job_fields(claim.id, claim.job, claim.attempt) if claim else dict.fromkeys(job_fields("", None))


class JobFilter(logging.Filter):
    """Add `job_id`, `task`, `queue` and `attempt` of the running job to every record; None outside a job."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields that the record lacks; always True."""
        for name, value in _running_job().items():
            record.__dict__.setdefault(name, value)
        return True


def add_job_tags(event: Any, hint: Any) -> Any:
    """Add the fields of `JobFilter` to an event of Sentry as tags; `sentry_sdk.init(before_send=add_job_tags)`.

    They are those of the log record, else of the running job. Returns the event.
    """
    record = getattr(hint.get("log_record"), "__dict__", {})
    for name, value in _running_job().items():
        value = record.get(name, value)
        if value is not None:
            event.setdefault("tags", {}).setdefault(name, str(value))
    return event


class TerminalHandler(logging.StreamHandler[TextIO]):
    """What prints the package's log to standard error in a process whose project configures no handler for it."""


logger = SafeLogger(logging.getLogger("django_delayq"))
