"""Process limits: limits that a task can lower for its whole process, so that other threads fail."""

import resource
import sys
from contextlib import suppress

_OPEN_FILES, _ = resource.getrlimit(resource.RLIMIT_NOFILE)


def restore_open_files() -> None:
    """Allow as many open files again as at the start of the process.

    Called after a failure only: after each job, the system call would cost a short job 1 % of its time.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _OPEN_FILES:
        # ValueError: the task lowered the hard limit too, and this process may not raise that.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, hard))


def check_recursion(limit: int) -> None:
    """Raise RuntimeError if the recursion limit is below `limit`, after restoring it.

    A lack of recursion can fail any thread at any line, also inside locks and callbacks of asyncio. A job beside such a
    task may then wait forever, so the process has to end.
    """
    lowered = sys.getrecursionlimit()
    if lowered < limit:
        sys.setrecursionlimit(limit)
        raise RuntimeError(f"A task lowered the recursion limit of its process from {limit} to {lowered}.")
