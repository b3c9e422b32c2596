"""Wire: commands as the bytes Redis reads (RESP 2), where what each call of a script repeats is packed only once.

The client library packs all of a command anew: of a script with 14 keys that took 2 µs with hiredis and 8 without, a
tenth of what it costs to enqueue a job.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import index

Part = bytes | str | int


def encode(*parts: Part) -> bytes:
    """Return a command."""
    return b"*%d\r\n%b" % (len(parts), _packed(parts))


def encode_evalsha(sha: str, fixed_keys: tuple[str, ...], more_keys: Sequence[str], args: Sequence[Part]) -> bytes:
    """Return the call of a script that Redis knows by its SHA-1; `fixed_keys` are those that every call has."""
    keys = len(fixed_keys) + len(more_keys)
    head, rest = _head(sha, keys, fixed_keys), _packed((*more_keys, *args))
    return b"*%d\r\n%b%b" % (3 + keys + len(args), head, rest)


# Not with the other keys: a job's own would fill it, and be no use to anybody.
@lru_cache(maxsize=1024)
def _head(sha: str, keys: int, fixed_keys: tuple[str, ...]) -> bytes:
    return _packed(("EVALSHA", sha, keys, *fixed_keys))


def _packed(parts: Iterable[Part]) -> bytes:
    sized: list[int | bytes] = []
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode() if isinstance(part, str) else b"%d" % index(part)
        sized += (len(data), data)
    # Formatted at once: of the four parts of a job that took 0.5 µs, one by one 1.2.
    return b"$%d\r\n%b\r\n" * (len(sized) // 2) % tuple(sized)
