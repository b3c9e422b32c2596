"""Process limits: those that a task can lower for the whole process, so that its other threads fail."""

import resource
import sys
from contextlib import suppress

_OPEN_FILES, _ = resource.getrlimit(resource.RLIMIT_NOFILE)


def restore_open_files() -> None:
    """Allow as many open files again as when the process began.

    Called after a failure only: the system call after each job would cost a short one 1 % of its time.
    """
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if now < _OPEN_FILES:
        # ValueError: the task lowered the upper limit, too, and this process may not raise that.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, most))


def check_recursion(limit: int) -> None:
    """Raise RuntimeError if less recursion is allowed than `limit`, after allowing that again.

    Unlike a lack of files, this fails any thread at any line, in the locks and callbacks of asyncio, too. A job beside
    such a task can wait for ever, so the process has to end.
    """
    lowered = sys.getrecursionlimit()
    if lowered < limit:
        sys.setrecursionlimit(limit)
        raise RuntimeError(f"A task lowered the recursion limit of its process from {limit} to {lowered}.")
