"""Log errors: a context manager for code that traces a job, whose exceptions must not reach the job."""

from types import TracebackType

from django_delayq.exceptions import TaskTimeout
from django_delayq.job.attempts import LAST_ERROR
from django_delayq.job.errors.error_text import cut_error
from django_delayq.job.errors.exception_text import path_of, traceback_of
from django_delayq.logs import logger

#: What has been logged in this process: what was tried, and the class of its exception.
_logged: set[tuple[str, str]] = set()


class LogErrors:
    """A context manager that suppresses an `Exception`, and logs the first one of its class in each process."""

    # A class, since each job enters several: a generator takes three times as long.
    __slots__ = ("_action",)

    def __init__(self, action: str) -> None:
        """`action` completes the sentence "Tracing could not …" of the log."""
        self._action = action

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        # A time limit of the task may end while it enqueues a job.
        if not isinstance(error, Exception) or isinstance(error, TaskTimeout):
            return False
        known = self._action, path_of(error)
        if known not in _logged:
            _logged.add(known)
            # As text and without the exceptions behind it: one may be the task's, whose variables may be sensitive.
            logger.warning(
                "Tracing could not %s. Jobs continue without it; correct the code in which this traceback ends. "
                "This process logs no further %s of this kind.\n%s",
                self._action,
                known[1],
                cut_error(traceback_of(error, chain=False), LAST_ERROR, exception=known[1]),
            )
        return True
