"""Client time: the CPU time that this process spends inside redis-py, added up in shared memory.

It costs two clock readings for each command; under load, a worker's command carries a batch of jobs.
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


def record_client_time(path: str) -> None:
    """From now on add the CPU time of all calls into redis-py to the first 8 bytes (ns) of the file."""
    with open(path, "r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
    for owner, names in ((redis.Redis, ["execute_command"]), (AbstractConnection, ["send_command", "read_response"])):
        for name in names:
            setattr(owner, name, _timed(getattr(owner, name), memory))


def _timed(call: Callable[..., Any], memory: mmap.mmap) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        # Time only the outermost call, because these methods call one another.
        if getattr(_inside, "active", False):
            return call(*args, **kwargs)
        _inside.active, began = True, time.thread_time_ns()
        try:
            return call(*args, **kwargs)
        finally:
            spent, _inside.active = time.thread_time_ns() - began, False
            with _lock:
                struct.pack_into("<q", memory, 0, struct.unpack_from("<q", memory)[0] + spent)

    return timed
