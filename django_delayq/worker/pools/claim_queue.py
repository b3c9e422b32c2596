"""ClaimQueue: the claims of one pool, queued and running. Each ends exactly once, with one outcome.

User code may raise an exception in any thread at any time (PyThreadState_SetAsyncExc, as time limits do). So a claim is
recorded outside the frame of the code that runs it, and the interrupted thread calls `recover()`.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from django_delayq.job.job import Claim
from django_delayq.job.outcome import UNSTARTED, Outcome
from django_delayq.job.progress import Progress
from django_delayq.logs import job_fields, logger
from django_delayq.worker.execution import timed
from django_delayq.worker.outcomes import failed


class PoolClient(Protocol):
    """The owner of submitted claims: a worker. Its methods are called in any thread of the pool."""

    def may_begin(self, claim: Claim) -> bool:
        """Return whether the claim's lease is surely held: after a freeze, another worker may have the job.

        Called right before the code begins. The job's hard limit counts from this call.
        """

    def report_progress(self, claim: Claim, progress: Progress) -> None:
        """Store the progress of a claim's job soon."""

    def finished(self, claim: Claim, outcome: Outcome) -> None:
        """Record the outcome of a claim; called once for each claim."""


@dataclass(slots=True, eq=False)
class Entry:
    """One claim in a pool; the `RunLink` of its code."""

    claim: Claim
    owner: PoolClient
    #: time.monotonic() when the claim was submitted, and when its code was allowed to begin.
    submitted_at: float
    began: float | None = None
    #: The seat of the thread that took it.
    seat: "Seat | None" = None
    #: How it ended, and whether the owner has got that.
    outcome: Outcome | None = None
    reported: bool = False
    #: Somebody asked its job to stop.
    should_stop: bool = False

    def report_progress(self, progress: Progress) -> None:
        """Pass the progress of its job on to the owner."""
        self.owner.report_progress(self.claim, progress)

    def timed(self, outcome: Outcome) -> Outcome:
        """Return an outcome of this moment with the time that the code ran, if it began."""
        return outcome if self.began is None else timed(outcome, self.began)


class Seat:
    """The place of one thread, or loop: holds the entry that it works on, so that `recover()` finds it."""

    entry: Entry | None = None


class ClaimQueue:
    """A queue that also knows the claims taken from it until they end. Used by any thread."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: deque[Entry] = deque()
        #: By lease, queued and running.
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
        """Queue claims; their owner gets the outcome of each."""
        now = self._clock()
        entries = [Entry(claim, owner, now) for claim in claims]
        with self._lock:
            self._entries.update((entry.claim.lease, entry) for entry in entries)
            self._waiting.extend(entries)

    def oldest_wait(self) -> float:
        """Return the seconds for which the oldest queued claim has waited, 0 if there is none."""
        try:
            return self._clock() - self._waiting[0].submitted_at
        except IndexError:
            return 0.0

    def take(self, seat: Seat) -> Entry | None:
        """Move the oldest queued claim to a seat and return it; None if none is queued."""
        with self._lock:
            if not self._waiting:
                return None
            # Into the seat before it leaves the queue: an exception may strike in between.
            entry = self._waiting[0]
            entry.seat, seat.entry = seat, entry
            self._waiting.popleft()
            return entry

    def begin(self, entry: Entry) -> bool:
        """Mark a claim as begun; returns False if its code must not run, as its lease is unsure or the queue closed."""
        if not entry.owner.may_begin(entry.claim):
            return False
        with self._lock:
            if self._closed or entry.outcome is not None:
                return False
            entry.began = self._clock()
            return True

    def has_begun(self, claim: Claim) -> bool:
        """Return whether a claim's code may have begun; certain once the queue is closed."""
        with self._lock:
            entry = self._entries.get(claim.lease)
            return entry is None or entry.began is not None

    def find(self, lease: bytes) -> Entry | None:
        """Return the entry of a claim, queued or running; None if it is not here."""
        with self._lock:
            return self._entries.get(lease)

    def overrun(self, seconds: float) -> int:
        """Return how many running claims are past their hard limits by that many seconds."""
        now = self._clock() - seconds
        with self._lock:
            entries = list(self._entries.values())
        return sum(entry.began is not None and now > entry.began + entry.claim.hard_limit for entry in entries)

    def end(self, entry: Entry, outcome: Outcome) -> None:
        """Finish a claim and report the outcome to its owner. Ignores a second outcome."""
        with self._lock:
            if entry.outcome is not None:
                return
            if self._entries.pop(entry.claim.lease, None) is not None:
                self.finished_count += 1
            # Last: after an exception that strikes before this, `recover()` ends the claim.
            entry.outcome = outcome
        self._report(entry, outcome)

    def recover(self, seat: Seat, error: BaseException) -> None:
        """End the claim that an exception left in a thread's seat: as failed, or as unstarted if it had not begun."""
        entry = seat.entry
        if entry is None:
            return
        with self._lock:
            # Interrupted in `take()`, the claim may still be queued, or be in another seat by now.
            is_elsewhere = entry.seat is not seat or entry in self._waiting
        if not is_elsewhere:
            if entry.outcome is None:
                self.end(entry, UNSTARTED if entry.began is None else entry.timed(failed(error)))
            elif not entry.reported:
                self._report(entry, entry.outcome)
        seat.entry = None

    def release_queued(self) -> None:
        """Finish all queued claims as unstarted."""
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

    def _report(self, entry: Entry, outcome: Outcome) -> None:
        try:
            entry.owner.finished(entry.claim, outcome)
        except Exception:
            # The owner buffers the outcome before anything that can raise; its next step hands it in.
            claim = entry.claim
            fields = job_fields(claim.id, claim.job, claim.attempt)
            logger.exception("Job %s: its worker could not be woken", claim.id, extra=fields)
        entry.reported = True
