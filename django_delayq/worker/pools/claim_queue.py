"""ClaimQueue: the claims of one pool, waiting and running. Each ends exactly once with an outcome, whatever strikes.

Code of users may raise an exception in any thread at any time (PyThreadState_SetAsyncExc, as time limits do). So a
claim is recorded outside the frame of the code that runs it, and a thread that was struck calls `recover()`.
"""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from django_delayq.job.job import Claim
from django_delayq.job.outcome import UNSTARTED, Outcome
from django_delayq.log import logger
from django_delayq.worker.execution import failed, timed
from django_delayq.worker.pools.base import PoolClient


@dataclass(slots=True, eq=False)
class Entry:
    """One claim in a pool."""

    claim: Claim
    owner: PoolClient
    #: time.monotonic() when it was submitted, and when its code was allowed to begin.
    since: float
    began: float | None = None
    #: Who took it out of the queue.
    seat: "Seat | None" = None
    #: How it ended; the owner is told after it is set.
    outcome: Outcome | None = None
    told: bool = False


class Seat:
    """The entry that one thread has in hand."""

    entry: Entry | None = None


class ClaimQueue:
    """Used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Entry] = deque()
        self._entries: dict[bytes, Entry] = {}
        self._closed = False
        #: Claims finished so far.
        self.finished_count = 0

    @property
    def held(self) -> int:
        """Claims put in and not finished."""
        return len(self._entries)

    @property
    def queued(self) -> int:
        """Claims that nobody has taken."""
        return len(self._waiting)

    def put(self, claims: Sequence[Claim], owner: PoolClient) -> None:
        """Queue claims; their owner is called when each has finished."""
        now = monotonic()
        entries = [Entry(claim, owner, now) for claim in claims]
        with self._lock:
            self._entries.update((entry.claim.lease, entry) for entry in entries)
            self._waiting.extend(entries)

    def oldest_wait(self) -> float:
        """Return for how many seconds the oldest claim has waited to be taken."""
        try:
            return monotonic() - self._waiting[0].since
        except IndexError:
            return 0.0

    def take(self, seat: Seat) -> Entry | None:
        """Put the oldest claim into a seat; None if none waits."""
        with self._lock:
            if not self._waiting:
                return None
            # In the seat before it is out of the queue: in between, an exception may strike.
            entry = self._waiting[0]
            entry.seat, seat.entry = seat, entry
            self._waiting.popleft()
            return entry

    def begin(self, entry: Entry) -> bool:
        """Mark a claim as begun; false, and its code must not run, if its lease is unsure or the queue is closed."""
        if not entry.owner.may_begin(entry.claim):
            return False
        with self._lock:
            if self._closed or entry.outcome is not None:
                return False
            entry.began = monotonic()
            return True

    def has_begun(self, claim: Claim) -> bool:
        """Whether a claim's code may have begun; certain once the queue is closed."""
        with self._lock:
            entry = self._entries.get(claim.lease)
            return entry is None or entry.began is not None

    def overrun(self, seconds: float) -> int:
        """Return how many claims run that are beyond their hard limits by so many seconds."""
        now = monotonic() - seconds
        with self._lock:
            entries = list(self._entries.values())
        return sum(entry.began is not None and now > entry.began + entry.claim.hard_limit for entry in entries)

    def end(self, entry: Entry, outcome: Outcome) -> None:
        """Finish a claim and tell its owner; a second outcome is ignored."""
        with self._lock:
            if entry.outcome is not None:
                return
            if self._entries.pop(entry.claim.lease, None) is not None:
                self.finished_count += 1
            # Last: an exception that strikes before leads here once more.
            entry.outcome = outcome
        self._tell(entry, outcome)

    def recover(self, seat: Seat, error: BaseException) -> None:
        """End what an exception left in a thread's seat: as failed, or as unstarted if it had not begun."""
        entry = seat.entry
        if entry is None:
            return
        with self._lock:
            # Struck while it was taken: it may still wait, or be in another seat by now.
            gone = entry.seat is not seat or entry in self._waiting
        if not gone:
            if entry.outcome is None:
                self.end(entry, UNSTARTED if entry.began is None else timed(failed(error), entry.began))
            elif not entry.told:
                self._tell(entry, entry.outcome)
        seat.entry = None

    def release_queued(self) -> None:
        """Finish all claims that wait as unstarted."""
        while True:
            with self._lock:
                if not self._waiting:
                    return
                entry = self._waiting.popleft()
            self.end(entry, UNSTARTED)

    def close(self) -> None:
        """Let no further claim begin."""
        with self._lock:
            self._closed = True

    def _tell(self, entry: Entry, outcome: Outcome) -> None:
        try:
            entry.owner.finished(entry.claim, outcome)
        except Exception:
            # The outcome is buffered before anything that can raise; the next step of the owner hands it in.
            logger.exception("Job %s: its worker could not be woken", entry.claim.id)
        entry.told = True
