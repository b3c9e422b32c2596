"""ActiveThreads: how many threads of a pool take claims at once. The pattern is known as leader and followers.

Each system call of a job releases the interpreter, and each other thread that could run then takes it: with eight
threads, short jobs cost as much again for these switches. So as few threads take claims as keep the interpreter busy,
mostly one. Another thread, the standby, looks every few milliseconds. If jobs wait, and so leave the interpreter idle,
or if none has ended since, one more thread takes claims, up to all.
"""

import queue
from time import monotonic, process_time

from django_delayq.worker.pools.claim_queue import ClaimQueue, Seat

#: Seconds until the standby looks, and while the interpreter is busy: each look costs a switch.
FIRST_LOOK, BUSY_LOOK = 0.001, 0.005
#: CPU seconds of the process a second, while threads take claims. Below IDLE jobs wait. From BUSY to PARALLEL the
#: interpreter limits them. Above, they compute without it, on many CPUs.
IDLE, BUSY, PARALLEL = 0.7, 0.9, 1.4
#: Most seconds a job, over all threads, of jobs that are worth fewer threads.
SHORT = 0.00025
#: Seconds between two decisions on fewer threads. Over 1 ms the CPU time says nothing: the worker's own work comes in
#: bursts.
INTERVAL = 0.02
#: Seconds without a claim after which nothing is known of the next ones: all threads may take them.
PAUSE = 0.2


class ActiveThreads:
    """Let a thread take claims, or wait. Used by any thread.

    An exception may strike in any line. So this counts no threads: it holds sets of seats, which `forget()` corrects.
    """

    def __init__(self, claims: ClaimQueue, size: int) -> None:
        """Let up to `size` threads take from `claims`."""
        self._claims = claims
        self._size = size
        #: The number of threads that should take claims while some are queued.
        self._wanted = size
        self._active: set[Seat] = set()
        self._standby: Seat | None = None
        #: Each item lets one waiting thread look again. One too many does no harm.
        self._signals: queue.SimpleQueue[None] = queue.SimpleQueue()
        #: Seconds, CPU seconds and finished claims since the last decision, while threads took claims.
        self._seen = (0.0, 0.0, 0)
        #: These clocks when the first of the active threads began; None while there is none.
        self._began: tuple[float, float, int] | None = None
        self._ended = 0.0

    def wake(self, count: int) -> None:
        """Wake the threads that `count` newly queued claims need."""
        needed = min(count, self._wanted - len(self._active))
        if needed < count and self._standby is None and self._wanted < self._size:
            needed = max(needed, 0) + 1
        for _ in range(needed):
            self._signals.put(None)

    def wait(self, seat: Seat) -> None:
        """Return once this thread should take claims."""
        self.forget(seat)
        # After `forget()`: a claim queued before it is seen here, and one queued after it wakes a thread.
        while not (self._claims.queued and self._joins(seat)):
            self._signals.get()

    def should_wait(self) -> bool:
        """Return whether the thread that has run a claim should take no other for now."""
        began = self._began
        if began is not None and self._seen[0] + monotonic() - began[0] >= INTERVAL:
            self._record()
            self._began = self._clocks()
            self._decide()
        return len(self._active) > self._wanted

    def forget(self, seat: Seat) -> None:
        """Record that a thread takes no claims."""
        self._active.discard(seat)
        if not self._active and self._began is not None:
            self._record()
            self._began, self._ended = None, monotonic()
        if self._standby is seat:
            self._standby = None

    def _joins(self, seat: Seat) -> bool:
        """Make a thread active if one more is wanted; else let it be the standby, until one is, if there is none."""
        if self._began is None and monotonic() - self._ended > PAUSE:
            self._wanted = self._size
        look = FIRST_LOOK
        while len(self._active) >= self._wanted:
            if self._standby is not None:
                return False
            self._standby = seat
            began, cpu, finished = self._clocks()
            try:
                self._signals.get(timeout=look)
            except queue.Empty:
                busy = (process_time() - cpu) / (monotonic() - began)
                stuck = look == BUSY_LOOK and self._claims.finished_count == finished
                if stuck or not IDLE <= busy <= PARALLEL:
                    self._wanted = min(self._wanted + 1, self._size)
                    # This thread, and the next standby.
                    self.wake(self._claims.queued)
                    look = FIRST_LOOK
                else:
                    look = BUSY_LOOK
            self._standby = None
            if not self._claims.queued:
                return False
        self._active.add(seat)
        if self._began is None:
            self._began = self._clocks()
        return True

    def _decide(self) -> None:
        (elapsed, cpu, finished), self._seen = self._seen, (0.0, 0.0, 0)
        if BUSY * elapsed <= cpu <= PARALLEL * elapsed and elapsed < SHORT * finished:
            self._wanted = max(1, min(self._wanted, len(self._active)) // 2)

    def _record(self) -> None:
        if self._began is not None:
            before, now = self._began, self._clocks()
            seconds, cpu, finished = (end - start for start, end in zip(before, now, strict=True))
            self._seen = self._seen[0] + seconds, self._seen[1] + cpu, self._seen[2] + int(finished)

    def _clocks(self) -> tuple[float, float, int]:
        return monotonic(), process_time(), self._claims.finished_count
