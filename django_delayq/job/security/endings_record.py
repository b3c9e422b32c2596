"""Endings record: a chunk of endings as Redis stores it, compressed, and encrypted if encryption is on.

A chunk is: the code of the process that reported it (8 bytes), then, sealed, the names in JSON and a row an ending. A
large one is compressed, after which it begins with another byte than JSON does.
"""

import json
import struct
from collections.abc import Sequence
from functools import lru_cache
from zlib import compress, decompressobj, error

from django_delayq.exceptions import BadBody
from django_delayq.job.ending import ENDED, Ending, EndingRow
from django_delayq.job.security.encryption import Cipher
from django_delayq.job.value import has_type

_PURPOSE, _CODE, _ID = b"endings", 8, 12
#: id; numbers of its task, queue and worker among the names; attempt; number of its state, with the bits below; end,
#: start delay and run time (µs).
_ROW = struct.Struct(">12sHHHIBqqq")
_HAS_TIMES, _HAS_RESULT = 16, 32
_STATES = {state.value: number for number, state in enumerate(ENDED)}
#: Bytes from which a chunk is compressed: to open a small one takes longer than to read it.
_LARGE = 512
#: Most bytes of a chunk when decompressed: a foreign one may grow without end.
_MOST_OPENED = 32 * 1024 * 1024


def pack_endings(
    rows: Sequence[EndingRow], *, code: bytes, name: str, cipher: Cipher, most_bytes: int
) -> tuple[bytes, int]:
    """Return the chunk of these endings, oldest first, and how many are in it: the newest that fit into the bytes.

    `name` is the worker of rows that name none. b"" and 0 without any.
    """
    while rows:
        body = _packed(rows, name)
        chunk = code + cipher.seal(code, _PURPOSE, compress(body, 1) if len(body) >= _LARGE else body)
        if len(chunk) <= most_bytes:
            return chunk, len(rows)
        rows = rows[len(rows) // 2 + 1 :]
    return b"", 0


def read_endings(chunk: bytes, *, shard: int, cipher: Cipher) -> list[Ending]:
    """Return the endings of a chunk, oldest first; none if it is damaged, or if this process cannot read it."""
    try:
        body = cipher.open(chunk[:_CODE], _PURPOSE, chunk[_CODE:])
        if body[:1] != b"[":
            body = decompressobj().decompress(body, _MOST_OPENED)
        head, _, packed = body.partition(b"\n")
        names = _small_names(head) if len(head) < _LARGE else _names(head)
        return [
            Ending(
                raw_id=raw_id,
                shard=shard,
                task=names[task],
                queue=names[queue],
                attempt=attempt,
                state=ENDED[flags % _HAS_TIMES],
                ended_us=ended_us,
                lag_us=lag_us if flags & _HAS_TIMES else None,
                run_us=run_us if flags & _HAS_TIMES else None,
                has_result=flags & _HAS_RESULT != 0,
                worker=names[worker],
            )
            for raw_id, task, queue, worker, attempt, flags, ended_us, lag_us, run_us in _ROW.iter_unpack(packed)
        ]
    except (BadBody, error, struct.error, ValueError, IndexError, RecursionError):
        return []


def _names(head: bytes) -> Sequence[str]:
    """Read the names of a chunk. Raises ValueError and RecursionError."""
    names = json.loads(head)
    if not (has_type(names, list) and all(has_type(each, str) for each in names)):
        raise ValueError("not a list of names")
    return tuple(names)


#: A small project has a chunk for each ending, and few names.
_small_names = lru_cache(maxsize=4096)(_names)


def _packed(rows: Sequence[EndingRow], name: str) -> bytes:
    names: dict[str, int] = {}
    packed, number_of, pack = [], names.setdefault, _ROW.pack
    for id_first, task, queue, before, state, moment_us, lag_us, run_us, ttl_ms, worker in rows:
        flags = _STATES[state] + (ttl_ms > 0) * _HAS_RESULT + (run_us is not None) * _HAS_TIMES
        task_number, queue_number = number_of(task, len(names)), number_of(queue, len(names))
        worker_number = number_of(worker or name, len(names))
        lag_us, run_us = lag_us or 0, run_us or 0
        numbers = before + 1, flags, moment_us + lag_us + run_us, lag_us, run_us
        try:
            packed.append(pack(id_first[:_ID], task_number, queue_number, worker_number, *numbers))
        except struct.error:
            # A time that was edited manually in Redis is too large.
            continue
    return json.dumps([*names]).encode("ascii") + b"\n" + b"".join(packed)
