"""The tasks of every system, and the record of their runs, which costs no Redis command.

The record is a file in shared memory: one byte for each job that counts its runs, then eight bytes for each job with
the time of its last start. Counting takes 0.1 µs in every system, and survives a process that is killed right after it.
"""

import asyncio
import mmap
import os
import struct
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any

#: Bytes of a job in the run record: first all counts, then all start times.
BYTES_PER_JOB = 9
#: Seconds that a `wait` job waits.
WAIT = 0.01
#: The arguments of every job after its number: a short string and a small dict.
PAYLOAD = ("text", {"a": 1})

_record: Any = None


def _open_record() -> Any:
    global _record
    if _record is None:
        with open(os.environ["BENCH_RUN_RECORD"], "r+b") as file:
            _record = mmap.mmap(file.fileno(), 0)
    return _record


@cache
def _open_log() -> int:
    return os.open(os.environ["BENCH_RUN_RECORD"] + ".log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def noop(number: int, text: str, mapping: dict[str, Any]) -> None:
    """Count the run and do nothing else."""
    (_record or _open_record())[number] += 1


def record_start(number: int, text: str, mapping: dict[str, Any]) -> None:
    """Record the start time, in µs since the epoch, and count the run."""
    began_us = time.time_ns() // 1_000
    record = _open_record()
    struct.pack_into("<q", record, len(record) // BYTES_PER_JOB + 8 * number, began_us)
    record[number] += 1


def wait(number: int, text: str, mapping: dict[str, Any]) -> None:
    """Wait 10 ms, as for a reply of another service, and count the run."""
    time.sleep(WAIT)
    _open_record()[number] += 1


def write(number: int, text: str, mapping: dict[str, Any]) -> None:
    """Append 16 bytes to a file, and count the run: a system call, during which other threads may run."""
    os.write(_open_log(), b"%015d\n" % number)
    _open_record()[number] += 1


def sleep_1ms(number: int, text: str, mapping: dict[str, Any]) -> None:
    """Wait 1 ms, and count the run."""
    time.sleep(0.001)
    _open_record()[number] += 1


def sleep_100us(number: int, text: str, mapping: dict[str, Any]) -> None:
    """Wait 0.1 ms, and count the run."""
    time.sleep(0.0001)
    _open_record()[number] += 1


def runs(number: int) -> int:
    """Return how often a job ran."""
    count: int = _open_record()[number]
    return count


def to_datetime(at_us: int) -> datetime:
    """Return µs since the epoch as an aware datetime."""
    return datetime.fromtimestamp(at_us / 1e6, UTC)


async def send_concurrently(
    send: Callable[[str, int, int | None], Awaitable[None]], task: str, jobs: list[tuple[int, int | None]]
) -> None:
    """Enqueue jobs by 50 coroutines at a time: the fastest way of a system without a bulk call."""
    await send(task, *jobs[0])
    for first in range(1, len(jobs), 50):
        await asyncio.gather(*(send(task, number, at_us) for number, at_us in jobs[first : first + 50]))


_FUNCTIONS = (noop, record_start, write, wait, sleep_1ms, sleep_100us)
#: Name -> function: what adapters register.
TASKS = {func.__name__: func for func in _FUNCTIONS}
