"""Runtime: what the package takes from its surroundings, as one value. Tests put another in its place by `override()`.

The value belongs to the process, not to a thread: a test's jobs may run in any thread.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import attrgetter
from threading import Lock
from typing import Any

from django_delayq.clock import Clock, ServerClock


def _ignore(_: BaseException) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much one request to the admin's pages does; a long action continues in the next request."""

    #: Seconds that all reads of a page may take together.
    page_seconds: float = 2.8
    #: Seconds for counting the matching jobs, for changing them, and for finding out afterwards whether more match.
    count_seconds: float = 1.0
    action_seconds: float = 2.0
    more_seconds: float = 0.5
    #: Rows that one reading examines of a list to find those that match, over few queues; how many if it begins a list,
    #: because people wait for that page, and the others follow by themselves; how many of them one call reads, so that
    #: no call holds Redis for 10 ms; and most of them that it returns.
    scanned_rows: int = 2_000
    first_rows: int = 500
    slice_rows: int = 250
    batch_rows: int = 250
    #: Seconds for finding those that match in one reading.
    matching_seconds: float = 0.1
    #: Most jobs that one call changes.
    changed_jobs: int = 250
    #: Most jobs of an action that have a row each in the audit log; an action on more has one row.
    logged_jobs: int = 100
    #: Most jobs that can be destroyed without typing their number.
    untyped_jobs: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The surroundings of one process."""

    #: The clock of every store that is made without one of its own.
    clock: Clock = field(default_factory=ServerClock)
    #: Settings above DELAYQ and above the OPTIONS of every alias in TASKS: no setting of the project can lead a test to
    #: somebody's Redis. Call `drop_config()` after a change.
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: Returns whether a database connection is in a transaction that jobs wait for. A `TestCase` has one that never
    #: commits, which they must not wait for.
    in_transaction: Callable[[Any], bool] = attrgetter("in_atomic_block")
    #: Whether database connections are cleaned up before and after a job, as Django does around a request. In a test
    #: the connection is the test's own.
    clean_connections: bool = True
    #: The bounds of one request to the admin's pages.
    bounds: Bounds = field(default_factory=Bounds)
    #: Called with the handles of jobs that were just accepted.
    on_sent: tuple[Callable[[Sequence[Any]], object], ...] = ()
    #: Called with an exception that ended a task's code, before it becomes an outcome.
    on_task_exception: Callable[[BaseException], object] = _ignore


_usual = _current = Runtime()
#: The changes of the open blocks, in the order in which they began.
_open: list[dict[str, Any]] = []
_lock = Lock()


def current() -> Runtime:
    """Return the runtime in force."""
    return _current


@contextmanager
def override(**changes: Any) -> Iterator[Runtime]:
    """Put a runtime with other fields in force until the block ends. Blocks may be nested.

    Blocks of several threads or coroutines may end in any order: each takes back its own changes, and no others.
    """
    # First: a field that does not exist must change nothing.
    replace(_usual, **changes)
    with _lock:
        _open.append(changes)
        _combine()
        mine = _current
    try:
        yield mine
    finally:
        with _lock:
            del _open[next(at for at, each in enumerate(_open) if each is changes)]
            _combine()


def _combine() -> None:
    global _current
    _current = reduce(lambda runtime, changes: replace(runtime, **changes), _open, _usual)
