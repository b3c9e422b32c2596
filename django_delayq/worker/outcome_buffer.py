"""Outcome buffer: outcomes of attempts, from the threads of the pool until the worker sends them."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic

from django_delayq.job.job import Claim
from django_delayq.job.outcome import Outcome, OutcomeKind

#: Seconds an outcome may wait for those of jobs that still run.
_LONGEST_WAIT = 0.005
#: Most outcomes in one exchange.
_MAX_OUTCOMES = 256
#: Most bytes of results in one exchange, plus one result. Redis writes them in one step, and it closes a connection
#: that sends more than 1 GB; the same exchange would then be sent again and again.
_MAX_BYTES = 1024 * 1024


class OutcomeBuffer:
    """Outcomes that wait to be sent. Any thread adds them, one takes them."""

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._ended: deque[tuple[Claim, Outcome]] = deque()
        self._first_at = 0.0
        self._lock = threading.Lock()
        self._expected = 0

    def __len__(self) -> int:
        return len(self._ended)

    @property
    def wait(self) -> float:
        """Seconds until the outcomes must be sent: none if no job runs whose outcome could be sent with them.

        May be negative.
        """
        # A worker without outcomes can leave its next claim in Redis, which begins a job 0.3 ms earlier.
        return self._first_at + _LONGEST_WAIT - self._clock() if self._expected > 0 else 0.0

    @property
    def expected(self) -> int:
        """Number of outcomes that will still be added: claims that run or wait in the pool."""
        return max(0, self._expected)

    def expect(self, number: int) -> None:
        """Expect so many more outcomes."""
        with self._lock:
            self._expected += number

    def add(self, claim: Claim, outcome: Outcome) -> bool:
        """Buffer an outcome. Returns True if the caller must wake the worker.

        That is so for the first outcome in the buffer, and for one after which no other is expected.
        """
        # Under the lock that `take()` holds: an outcome added just after the last was taken would wait for the sweep.
        with self._lock:
            first = not self._ended
            self._ended.append((claim, outcome))
            self._expected -= 1
            if outcome.kind is OutcomeKind.UNSTARTED:
                # Another worker may be free for it.
                self._first_at = 0.0
            elif first:
                self._first_at = self._clock()
            return first or self._expected <= 0

    def restore(self, ended: Iterable[tuple[Claim, Outcome]]) -> None:
        """Buffer again outcomes that could not be sent."""
        with self._lock:
            self._ended.extend(ended)

    @contextmanager
    def taken(self) -> Iterator[list[tuple[Claim, Outcome]]]:
        """Take outcomes as `take()` does, and restore them if the block raises."""
        ended = self.take()
        try:
            yield ended
        except BaseException:
            self.restore(ended)
            raise

    def take(self) -> list[tuple[Claim, Outcome]]:
        """Remove and return the oldest outcomes for one exchange, at most one for each lease.

        A task may end after it was settled as interrupted but before that was sent. Then its own outcome counts.
        """
        ended: list[tuple[Claim, Outcome]] = []
        size = 0
        with self._lock:
            while self._ended and len(ended) < _MAX_OUTCOMES and size < _MAX_BYTES:
                ended.append(self._ended.popleft())
                size += len(ended[-1][1].result or "")
            if self._ended:
                # They have waited long enough; the caller comes again at once and need not be woken.
                self._first_at = 0.0
        if any(outcome.kind is OutcomeKind.INTERRUPTED for _, outcome in ended):
            ended.sort(key=lambda item: item[1].kind is not OutcomeKind.INTERRUPTED)
        return list({claim.lease: (claim, outcome) for claim, outcome in ended}.values())

    def leases(self) -> set[bytes]:
        """Return the leases of the buffered outcomes."""
        return {claim.lease for claim, _ in list(self._ended)}
