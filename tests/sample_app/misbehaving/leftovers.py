"""Leftovers: tasks with odd return values, with leftovers, or that resist their time limits."""

import _thread
import asyncio
import atexit
import contextlib
import ctypes
import gc
import threading
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from django.db import connections, transaction

from tests.sample_app.misbehaving.errors import HostileClass, HostileText
from tests.sample_app.misbehaving.kinds import DEADLY, LONG, PLAIN, kind, raising

# What it returns, and leaves


class Raising:
    def __del__(self) -> None:
        raise SystemExit(6)

    def __repr__(self) -> str:
        raise SystemExit(7)


PLAIN.update(
    {
        "return_object": object,
        "return_raising": Raising,
        "return_generator": lambda: (number for number in range(3)),
        "return_future": Future,
        "return_lock": threading.Lock,
        "return_class": lambda: HostileClass,
        "return_huge": lambda: "x" * 5_000_000,
        "return_coroutine": lambda: asyncio.sleep(0),
    }
)


@kind(PLAIN)
def left_generator() -> None:
    """Leave a generator that refuses to be closed."""

    def stubborn() -> Any:
        while True:
            with contextlib.suppress(GeneratorExit):
                yield

    next(stubborn())


@kind(PLAIN)
def left_cycle() -> None:
    """Leave a cycle whose finalizers raise."""
    one = Raising()
    one.self = one  # type: ignore[attr-defined]
    weakref.finalize(one, raising(SystemExit))
    del one
    gc.collect()


@kind(PLAIN)
def left_threads() -> None:
    """Leave threads that end with an error."""
    for target in (raising(SystemExit), raising(HostileText), _thread.exit):
        threading.Thread(target=target, daemon=True).start()


# Each of these may raise in a thread that holds a lock of the whole process, which is then never released.
@kind(DEADLY)
def left_timer() -> None:
    """Leave a timer that raises in this thread when the task is over, as libraries with time limits do."""
    strike = ctypes.pythonapi.PyThreadState_SetAsyncExc
    here = ctypes.c_ulong(threading.get_ident())
    threading.Timer(0.05, strike, (here, ctypes.py_object(SystemExit))).start()


@kind(PLAIN)
def strike_itself_last() -> None:
    """Raise in this thread, as late as a task can."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(threading.get_ident()), ctypes.py_object(KeyboardInterrupt)
    )


@kind(DEADLY)
def strike_pool_threads() -> None:
    """Raise in each other thread that runs tasks."""
    for thread in threading.enumerate():
        if thread.name.startswith("delayq-") and thread.name[7:].isdigit() and thread.ident:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))


@kind(PLAIN)
def left_exit_function() -> None:
    """Leave an exit function that raises."""
    atexit.register(raising(SystemExit))


@kind(PLAIN)
def left_executor() -> None:
    """Leave an executor without a shutdown."""
    ThreadPoolExecutor(2).submit(time.sleep, 0.1)


@kind(PLAIN)
def left_transaction() -> None:
    """Leave a transaction open."""
    transaction.atomic().__enter__()


@kind(PLAIN)
def closed_connections() -> None:
    """Close and forget all connections to databases."""
    connections.close_all()
    with contextlib.suppress(AttributeError):
        del connections["default"]


# Time limits


@kind(PLAIN)
def sleep_on() -> None:
    """Sleep past both limits in a call that no exception interrupts."""
    time.sleep(LONG)


@kind(PLAIN)
def swallow_limits() -> None:
    """Compute past both limits, and catch the exceptions that should end it."""
    over = time.monotonic() + LONG
    while time.monotonic() < over:
        with contextlib.suppress(BaseException):
            while time.monotonic() < over:
                pass


@kind(PLAIN)
def late_limit() -> None:
    """End exactly when its limit expires."""
    # The limit is 1 s, and the call costs some of the last half millisecond.
    time.sleep(0.9995)


@kind(PLAIN)
def recurse() -> None:
    """Call itself without end."""
    recurse()


@kind(PLAIN)
def recurse_in_cleanup() -> None:
    """Recurse again when the stack is full."""
    try:
        recurse()
    finally:
        with contextlib.suppress(RecursionError):
            recurse()
