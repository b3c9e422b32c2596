"""Ending: how and when a job ended, and the endings of a process until its next report.

Redis keeps the newest endings, whether or not the jobs keep their results, so that people see what ran.
"""

from collections import deque
from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple, TypeAlias

from django_delayq.job.ids import to_text
from django_delayq.job.job import State

#: The states in which a job ends; their values are also counts of `metrics`. A record has the number of the state here.
ENDED = (State.DONE, State.DEAD, State.CANCELLED, State.EXPIRED, State.DROPPED)
#: A text that begins with the id (12 bytes), task, queue, number of attempts before the last one, state, due time (µs
#: since the epoch), start delay and run time (µs), ms for which its result is kept (0: it is not), and the worker ("":
#: the process that reports). If its code did not run, or nobody saw its end, both times are None, and its end stands in
#: place of the due time. It is a plain tuple of what a worker has at hand, because one is made for each job.
EndingRow: TypeAlias = tuple[bytes, str, str, int, str, int, int | None, int | None, int, str]


class Ending(NamedTuple):
    """The end of one job. A tuple, because a page makes thousands."""

    raw_id: bytes
    shard: int
    #: Empty if its body could not be read.
    task: str
    queue: str
    #: Number of its last attempt.
    attempt: int
    #: One of `ENDED`.
    state: State
    #: µs since the epoch, Redis's clock.
    ended_us: int
    #: µs from its due time to the start of its code, and from there to its end; None if it did not run, or if nobody
    #: saw its end.
    lag_us: int | None
    run_us: int | None
    #: Whether its result was kept. It may have expired since.
    has_result: bool
    worker: str

    @property
    def id(self) -> str:
        """The job's id as users see it."""
        return to_text(self.raw_id, self.shard)

    @property
    def started_us(self) -> int | None:
        """When its code began, µs since the epoch."""
        return None if self.run_us is None else self.ended_us - self.run_us


class EndingBuffer:
    """The newest endings of one process since its last report. Any thread adds them, one takes them."""

    def __init__(self, most: int) -> None:
        """`most`: how many are kept, also while the process cannot report; 0: none."""
        self._rows: deque[EndingRow] = deque(maxlen=most)
        #: Those that could not be sent. Only the thread that takes endings uses them.
        self._unsent: list[EndingRow] = []
        #: Adds the row of an ending. No lock: a deque is thread-safe.
        self.add = self._rows.append
        #: Whether it keeps any.
        self.is_on = most > 0

    def take(self) -> list[EndingRow]:
        """Return the endings since the last call, oldest first, and start from none."""
        rows, self._unsent = self._unsent, []
        # Not an iteration, which fails if another thread adds one meanwhile.
        rows += [self._rows.popleft() for _ in repeat(None, len(self._rows))]
        return rows[max(0, len(rows) - (self._rows.maxlen or 0)) :]

    def restore(self, rows: Sequence[EndingRow]) -> None:
        """Keep endings that were taken but could not be sent; the newest of them, if there are too many."""
        self._unsent = [*rows]


#: Keeps nothing.
NO_ENDINGS = EndingBuffer(0)
