"""Endings: how attempts ended, from the pool's threads until the worker hands them in."""

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import monotonic

from django_delayq.job.job import Claim
from django_delayq.job.outcome import Outcome, OutcomeKind

#: Seconds an outcome may wait for company before it is handed in.
_HAND_IN = 0.005
#: Outcomes in one exchange, at most.
_OUTCOMES = 256
#: Bytes of results in one exchange, at most, and one result more: Redis writes them at one go, closes a connection that
#: asks with more than 1 GB, and the same exchange would be sent again for ever.
_BYTES = 1024 * 1024


class OutcomeBuffer:
    """Outcomes that wait to be handed in; added by any thread, taken by one."""

    def __init__(self) -> None:
        self._ended: deque[tuple[Claim, Outcome]] = deque()
        self._first_at = 0.0
        self._lock = threading.Lock()
        self._expected = 0

    def __len__(self) -> int:
        return len(self._ended)

    @property
    def wait(self) -> float:
        """Seconds until the oldest has waited long enough."""
        return self._first_at + _HAND_IN - monotonic()

    @property
    def expected(self) -> int:
        """How many more will be added."""
        return max(0, self._expected)

    def expect(self, number: int) -> None:
        """Count on so many more to be added."""
        with self._lock:
            self._expected += number

    def add(self, claim: Claim, outcome: Outcome) -> bool:
        """Take an outcome down; true for the first that waits: whoever hands in must be told."""
        # In one step with taking: what came just after the last was taken, told of by nobody, would wait for the sweep.
        with self._lock:
            first = not self._ended
            self._ended.append((claim, outcome))
            self._expected -= 1
            if outcome.kind is OutcomeKind.UNSTARTED:
                # Another worker may be free for it.
                self._first_at = 0.0
            elif first:
                self._first_at = monotonic()
        return first

    def restore(self, ended: Iterable[tuple[Claim, Outcome]]) -> None:
        """Let outcomes wait again that could not be handed in."""
        with self._lock:
            self._ended.extend(ended)

    @contextmanager
    def taken(self) -> Iterator[list[tuple[Claim, Outcome]]]:
        """Take outcomes as `take()` does; if the block raises they wait again, or nobody would hand them in."""
        ended = self.take()
        try:
            yield ended
        except BaseException:
            self.restore(ended)
            raise

    def take(self) -> list[tuple[Claim, Outcome]]:
        """Return the oldest for one exchange, one of a lease.

        A job given back may end after all, before that is told: then the task's own outcome stands.
        """
        ended: list[tuple[Claim, Outcome]] = []
        size = 0
        with self._lock:
            while self._ended and len(ended) < _OUTCOMES and size < _BYTES:
                ended.append(self._ended.popleft())
                size += len(ended[-1][1].result or "")
            if self._ended:
                # They have waited; who took these comes again at once, and need not be told.
                self._first_at = 0.0
        if any(outcome.kind is OutcomeKind.INTERRUPTED for _, outcome in ended):
            ended.sort(key=lambda item: item[1].kind is not OutcomeKind.INTERRUPTED)
        return list({claim.lease: (claim, outcome) for claim, outcome in ended}.values())

    def leases(self) -> set[bytes]:
        """Return the leases whose outcomes wait."""
        return {claim.lease for claim, _ in list(self._ended)}
