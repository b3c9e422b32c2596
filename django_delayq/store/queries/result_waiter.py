"""Result waiter: wait for the end of jobs whose result is kept. Called by processes that enqueue.

A thread waits for one job in a blocking command. An event loop may wait for thousands, so it looks at all of them at
once, again and again: a blocking command would take a connection for each.
"""

import asyncio
from contextlib import suppress
from math import ceil
from weakref import WeakKeyDictionary

from django_delayq.store.client.async_calls import in_thread
from django_delayq.store.queries.lookup import Lookup
from django_delayq.store.shard import Shard

#: Seconds that one call may block: the timeout of the connection is made for commands that do not block.
LONGEST = 1.0
#: Seconds between two looks of an event loop: the first time, and at most. Each pause is half as long again.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.2


def wait_for_result(shard: Shard, raw_id: bytes, seconds: float) -> bool:
    """Block until the job's result is there, for `LONGEST` at most. Return whether it is. One round trip.

    The result is popped from its list and pushed back in one step. It keeps its expiry, and any number of callers may
    wait for it. `shard` is one for workers: on one for producers, a call may take no longer than ENQUEUE_TIMEOUT.
    """
    key = shard.keys.results(raw_id)
    # Redis counts in milliseconds here, and 0 means forever.
    block = max(1, ceil(min(seconds, LONGEST) * 1_000)) / 1_000
    return shard.execute("BLMOVE", key, key, "LEFT", "RIGHT", str(block)) is not None


class EndWatch:
    """Waits for the ends of jobs of one shard, for the coroutines of one event loop."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._waiting: dict[bytes, list[asyncio.Future[None]]] = {}
        self._pause = _FIRST_PAUSE
        self._task: asyncio.Task[None] | None = None

    async def wait(self, raw_id: bytes, seconds: float | None) -> None:
        """Wait until the job has ended or is dead, for that many seconds at most. Raises `StoreError`."""
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(raw_id, []).append(end)
        # The new one may end soon.
        self._pause = _FIRST_PAUSE
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await end
        finally:
            waiting = self._waiting.get(raw_id, [])
            if end in waiting:
                waiting.remove(end)
            if not waiting:
                self._waiting.pop(raw_id, None)

    async def _look(self) -> None:
        while self._waiting:
            await asyncio.sleep(self._pause)
            self._pause = min(_LONGEST_PAUSE, 1.5 * self._pause)
            error: Exception | None = None
            try:
                ended = await in_thread(self._lookup.ended, list(self._waiting))
            except Exception as failed:
                # Whatever it is, the waiting coroutines must get it: they may have no timeout.
                ended, error = set(self._waiting), failed
            for raw_id in ended:
                for end in self._waiting.pop(raw_id, []):
                    if not end.done():
                        end.set_exception(error) if error else end.set_result(None)


_watches: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Shard, EndWatch]]" = WeakKeyDictionary()


def watch_of(shard: Shard, lookup: Lookup) -> EndWatch:
    """Return the watch of the running event loop for a shard, which `lookup` reads."""
    watches = _watches.setdefault(asyncio.get_running_loop(), {})
    return watches.setdefault(shard, EndWatch(lookup))
