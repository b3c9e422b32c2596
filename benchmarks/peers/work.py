"""Work: what every system's jobs do, and how they are counted without a word to Redis.

The ledger is a file in shared memory: for each job one byte that counts its runs, and eight that say when the last one
began. A count costs a tenth of a microsecond, for every system alike, also in a process that is killed right after.
"""

import asyncio
import mmap
import os
import struct
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

#: Bytes a job has in the ledger: first all counts, then all starts.
JOB_BYTES = 9
#: Seconds that a `wait` job waits.
WAIT = 0.01
#: What every job carries besides its number: a short string and a small dict.
PAYLOAD = ("text", {"a": 1})

_counts: Any = None


def _ledger() -> Any:
    global _counts
    if _counts is None:
        with open(os.environ["BENCH_LEDGER"], "r+b") as file:
            _counts = mmap.mmap(file.fileno(), 0)
    return _counts


def noop(number: int, text: str, mapping: dict[str, Any]) -> None:
    """Do nothing but be counted."""
    (_counts or _ledger())[number] += 1


def note(number: int, text: str, mapping: dict[str, Any]) -> None:
    """Write down when this began, in µs since the epoch."""
    began_us = time.time_ns() // 1_000
    ledger = _ledger()
    struct.pack_into("<q", ledger, len(ledger) // JOB_BYTES + 8 * number, began_us)
    ledger[number] += 1


def wait(number: int, text: str, mapping: dict[str, Any]) -> None:
    """Wait as for a reply from elsewhere, then be counted."""
    time.sleep(WAIT)
    _ledger()[number] += 1


def runs(number: int) -> int:
    """Return how often a job ran."""
    count: int = _ledger()[number]
    return count


def moment(at_us: int) -> datetime:
    """Return µs since the epoch as an aware datetime."""
    return datetime.fromtimestamp(at_us / 1e6, UTC)


async def side_by_side(
    send: Callable[[str, int, int | None], Awaitable[None]], task: str, jobs: list[tuple[int, int | None]]
) -> None:
    """Enqueue jobs, fifty at a time side by side: what coroutines allow where there is no call for many."""
    await send(task, *jobs[0])
    for first in range(1, len(jobs), 50):
        await asyncio.gather(*(send(task, number, at_us) for number, at_us in jobs[first : first + 50]))


#: By name: what adapters register.
TASKS = {"noop": noop, "note": note, "wait": wait}
