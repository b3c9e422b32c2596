"""Loop: one asyncio loop that runs thousands of `async def` jobs at once.

Plain functions run in threads beside it, suspects in processes of their own.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from functools import partial
from time import monotonic

from django_delayq.clock import SECOND_US
from django_delayq.execution import run_async
from django_delayq.job import Claim
from django_delayq.log import logger
from django_delayq.outcome import STOPPED, UNSTARTED, Ending, Outcome
from django_delayq.pools.children import Children
from django_delayq.pools.pool import Owner


class LoopPool:
    """Run up to `size` claims in one loop, in a thread of its own."""

    def __init__(self, size: int) -> None:
        self.size = size
        #: Claims that the loop has not come to, and since when each waits.
        self._inbox: deque[tuple[Claim, Owner, float]] = deque()
        self._lock = threading.Lock()
        self._held = 0
        #: Claims finished so far.
        self.ended = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._alone = Children(max_jobs=1)
        self._closed = False
        self._loop = asyncio.new_event_loop()
        # Its own has a thread or two a core: what waited there counted as running, up to its hard limit.
        self._loop.set_default_executor(ThreadPoolExecutor(size, thread_name_prefix="delayq-plain"))
        threading.Thread(target=self._run_forever, name="delayq-loop", daemon=True).start()

    @property
    def held(self) -> int:
        """Claims taken in and not finished."""
        return self._held

    @property
    def unbegun(self) -> int:
        """Claims taken in whose code has not begun: a task that computes holds up all others."""
        return len(self._inbox)

    def submit(self, claims: Sequence[Claim], owner: Owner) -> None:
        """Take claims in; their owner is told when each has finished, by the loop's thread or by `withdraw()`."""
        with self._lock:
            self._held += len(claims)
        now = monotonic()
        self._inbox.extend((claim, owner, now) for claim in claims)
        # Once for all: each call writes to the loop's own socket.
        self._loop.call_soon_threadsafe(self._begin)

    def waited(self) -> float:
        """Return for how many seconds the oldest claim has waited to begin."""
        try:
            return monotonic() - self._inbox[0][2]
        except IndexError:
            return 0.0

    def withdraw(self) -> None:
        """Finish all claims that have not begun as unstarted."""
        try:
            while True:
                claim, owner, _ = self._inbox.popleft()
                self._end(claim, owner, UNSTARTED)
        except IndexError:
            return

    def close(self) -> None:
        """Cancel what runs: a job that is given back must not run on."""
        self._closed = True
        self._alone.close()
        self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in self._tasks])

    def _run_forever(self) -> None:
        while True:
            error = None
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as raised:
                error = raised
            # sys.exit() in an asyncio task of the job's own, or loop.stop(): all other jobs would stand still.
            logger.error("A job ended the loop that all share; it goes on", exc_info=error)

    def _begin(self) -> None:
        while True:
            try:
                claim, owner, _ = self._inbox.popleft()
            except IndexError:
                return
            if not owner.may_begin(claim):
                self._end(claim, owner, UNSTARTED)
                continue
            # A context of its own, so that language, time zone and context variables start fresh.
            task = self._loop.create_task(self._run(claim, owner), context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, claim: Claim, owner: Owner) -> None:
        began, limit_us = monotonic(), claim.job.give_up_us if claim.job else None
        running = asyncio.ensure_future(self._carried_out(claim, owner))
        try:
            done, _ = await asyncio.wait([running], timeout=None if limit_us is None else limit_us / SECOND_US)
        except asyncio.CancelledError:
            done = set()
        if not done:
            # It may refuse to be cancelled, and then runs on; its lease is renewed no longer.
            running.cancel()
            stopped = self._closed
            reason = STOPPED if stopped else _over(limit_us or 0)
            outcome = Outcome(ending=Ending.INTERRUPTED if stopped else Ending.CRASHED, error=reason, began=began)
        else:
            outcome = running.result()
        self._end(claim, owner, outcome)

    async def _carried_out(self, claim: Claim, owner: Owner) -> Outcome:
        if claim.attempts.suspect:
            alone = partial(self._alone.run, claim, owner.may_begin)
            return await asyncio.get_running_loop().run_in_executor(None, alone)
        return await run_async(claim)

    def _end(self, claim: Claim, owner: Owner, outcome: Outcome) -> None:
        with self._lock:
            self._held -= 1
            self.ended += 1
        owner.finished(claim, outcome)


def _over(limit_us: int) -> str:
    return f"The task ran longer than its hard limit of {limit_us / SECOND_US:g} s and was cancelled."
