"""Client time: CPU time that this process spends inside redis-py, added up in shared memory for the CPU account.

Two clock readings a command; a command of a worker under load carries a batch of jobs.
"""

import mmap
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import redis
from redis.connection import AbstractConnection

_inside = threading.local()
_lock = threading.Lock()


def keep(path: str) -> None:
    """Add up, in the file's first 8 bytes (ns), what all calls into the library cost from now on."""
    with open(path, "r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
    for owner, names in ((redis.Redis, ["execute_command"]), (AbstractConnection, ["send_command", "read_response"])):
        for name in names:
            setattr(owner, name, _timed(getattr(owner, name), memory))


def _timed(call: Callable[..., Any], memory: mmap.mmap) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        # The outermost call alone: one calls the others.
        if getattr(_inside, "it", False):
            return call(*args, **kwargs)
        _inside.it, began = True, time.thread_time_ns()
        try:
            return call(*args, **kwargs)
        finally:
            spent, _inside.it = time.thread_time_ns() - began, False
            with _lock:
                struct.pack_into("<q", memory, 0, struct.unpack_from("<q", memory)[0] + spent)

    return timed
