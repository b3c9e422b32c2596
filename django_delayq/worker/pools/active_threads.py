"""ActiveThreads: how many threads of a pool take claims at once.

A thread that makes a system call releases the GIL, and any other thread that can run takes it. With eight threads these
switches cost a sixth of the rate of short jobs. So as few threads take claims as keep the GIL busy, mostly one.

One more thread, the standby, looks every few milliseconds. It lets one more thread take claims, up to all, in three
cases: jobs wait and leave the GIL idle, jobs compute without the GIL, or few jobs have ended since its last look. A
thread that a long job holds is no reason for fewer others.
"""

import queue
from time import monotonic, process_time

from django_delayq.worker.pools.claim_queue import ClaimQueue, Seat

#: Seconds before the standby's first look, and between two looks while the GIL is busy. Each look costs a switch.
FIRST_LOOK, BUSY_LOOK = 0.001, 0.005
#: CPU seconds of the process in each second in which threads take claims. Below IDLE, jobs wait: one more thread. From
#: BUSY to PARALLEL, the GIL limits them: fewer threads. Above PARALLEL, they compute without the GIL: one more.
IDLE, BUSY, PARALLEL = 0.7, 0.9, 1.4
#: Fewer threads take claims only if the pool ends more than one job in this many seconds. Beside longer jobs the
#: switches cost little.
SHORT = 0.00025
#: Least seconds between two decisions on fewer threads. The CPU time of 1 ms is too short a sample: the worker's own
#: work comes in bursts. For one more thread it is enough: the next decision undoes a wrong one.
INTERVAL = 0.02
#: Seconds without an active thread after which all threads may take claims: the next jobs may be of another kind.
PAUSE = 0.2


class ActiveThreads:
    """Let a thread take claims, or wait. Used by any thread.

    An exception may strike in any line. So this counts no threads: it holds sets of seats, which `leave()` corrects.
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
        #: Seconds, CPU seconds and finished claims measured since the last decision, while threads were active.
        self._measured = (0.0, 0.0, 0)
        #: The same three at the start of the current measurement; None while no thread is active.
        self._measuring_from: tuple[float, float, int] | None = None
        #: time.monotonic() when the last active thread left.
        self._idle_since = 0.0

    def wake(self, count: int) -> None:
        """Wake the threads that `count` newly queued claims need."""
        if self._measuring_from is None and monotonic() - self._idle_since > PAUSE:
            self._wanted = self._size
        needed = min(count, self._wanted - len(self._active))
        if needed < count and self._standby is None and self._wanted < self._size:
            needed = max(needed, 0) + 1
        for _ in range(needed):
            self._signals.put(None)

    def wait(self, seat: Seat) -> None:
        """Return once this thread should take claims."""
        self.leave(seat)
        # After `leave()`: a claim queued before it is seen here, and one queued after it wakes a thread.
        while not (self._claims.queued and self._activate(seat)):
            self._signals.get()

    def should_wait(self) -> bool:
        """Return whether the thread that has run a claim should take no other for now."""
        began = self._measuring_from
        if began is not None and self._measured[0] + monotonic() - began[0] >= INTERVAL:
            self._record()
            self._measuring_from = self._clocks()
            self._lower()
        return len(self._active) > self._wanted

    def leave(self, seat: Seat) -> None:
        """Record that a thread takes no claims."""
        self._active.discard(seat)
        if not self._active and self._measuring_from is not None:
            self._record()
            self._measuring_from, self._idle_since = None, monotonic()
        if self._standby is seat:
            self._standby = None

    def _activate(self, seat: Seat) -> bool:
        """Make the thread active, and return True. It may be the standby before.

        Return False if there is another standby, or no claim.
        """
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
                few_ended = look == BUSY_LOOK and self._claims.finished_count - finished < BUSY_LOOK / SHORT
                if few_ended or not IDLE <= busy <= PARALLEL:
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
        if self._measuring_from is None:
            self._measuring_from = self._clocks()
        # A thread that waits as the standby may have taken the signal of another one.
        wants_another = len(self._active) < self._wanted or (self._standby is None and self._wanted < self._size)
        if wants_another and self._claims.queued > 1 and self._signals.empty():
            self._signals.put(None)
        return True

    def _lower(self) -> None:
        (elapsed, cpu, finished), self._measured = self._measured, (0.0, 0.0, 0)
        # Two threads may come here at once; the second one has measured next to nothing.
        if elapsed < INTERVAL / 2 or not BUSY * elapsed <= cpu <= PARALLEL * elapsed or elapsed >= SHORT * finished:
            return
        held = self._held(since=monotonic() - INTERVAL)
        self._wanted = held + max(1, (min(self._wanted, len(self._active)) - held) // 2)

    def _held(self, *, since: float) -> int:
        """Return how many active threads have run the same job since that time.monotonic()."""
        entries = [seat.entry for seat in list(self._active)]
        return sum(entry is not None and entry.began is not None and entry.began < since for entry in entries)

    def _record(self) -> None:
        if self._measuring_from is not None:
            before, now = self._measuring_from, self._clocks()
            seconds, cpu, finished = (end - start for start, end in zip(before, now, strict=True))
            self._measured = self._measured[0] + seconds, self._measured[1] + cpu, self._measured[2] + int(finished)

    def _clocks(self) -> tuple[float, float, int]:
        return monotonic(), process_time(), self._claims.finished_count
