"""The job id: 12 bytes made by the client, and its text.

48 bits of the client's milliseconds, then 48 bits that start at random and count up within one process: ids sort in
enqueue order, and ties stay first-in, first-out. The text includes the shard, so it leads to the job even after shards
are added.
"""

import os
import re
import time
from collections.abc import Iterator
from itertools import count
from zlib import crc32

_PATTERN = re.compile(r"([0-9a-f]{24})-(0|[1-9][0-9]{0,3})")
_TAIL_BITS = 48


def restart_sequence() -> None:
    """Start the counting part at a new random number, and forget the latest time.

    Called after a fork: otherwise two children would make equal ids. Also after a test that set Python's clock forward:
    otherwise all later ids would have that time.
    """
    global _last_ms, _tails
    # The top bit stays clear, so that counting cannot overflow.
    _last_ms, _tails = 0, count(int.from_bytes(os.urandom(6)) >> 1)


def next_id() -> bytes:
    """Return a new id: 12 bytes, greater than all ids that this process made before. Safe in threads and handlers."""
    global _last_ms
    # No lock: a signal handler that enqueues may interrupt this line. next() of a count is atomic.
    # Ids keep their order even if the host's clock is set back.
    _last_ms = ms = max(_last_ms, time.time_ns() // 1_000_000)
    return (ms << _TAIL_BITS | next(_tails)).to_bytes(12)


_last_ms: int
_tails: Iterator[int]
restart_sequence()
os.register_at_fork(after_in_child=restart_sequence)


def created_us(raw_id: bytes) -> int:
    """Return when an id was made: µs since the epoch, to the millisecond, by the clock of the client."""
    return int.from_bytes(raw_id[:6]) * 1_000


def shard_of(routing: bytes, shards: int) -> int:
    """Return the shard for a routing value (digest of the unique key, else id); the same in every process."""
    return crc32(routing) % shards if shards > 1 else 0


def to_text(raw: bytes, shard: int) -> str:
    """Return the id as users see it: 24 hexadecimal digits, a hyphen, the shard."""
    return f"{raw.hex()}-{shard}"


def from_text(text: object) -> tuple[bytes, int] | None:
    """Return (12 bytes, shard) of an id's text, or None if it is not one."""
    match = _PATTERN.fullmatch(text) if isinstance(text, str) else None
    return (bytes.fromhex(match[1]), int(match[2])) if match else None
