"""Tasks that tests enqueue, in this process and in worker processes.

They record their events in the ledger, the file DELAYQ_TEST_LEDGER: one line each, appended in one write.
"""

import asyncio
import contextlib
import ctypes
import functools
import json
import multiprocessing
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django_delayq import DeadLetterNow, RetryLater, RetryPolicy, current_job, delayed_task, get_store
from django_delayq.job.outcome import Action, Decision
from django_delayq.signals import job_finished


def note(word: str, **facts: Any) -> None:
    """Append one line to the ledger."""
    line = json.dumps({"word": word, "at": time.time(), "pid": os.getpid(), **facts}) + "\n"
    descriptor = os.open(os.environ["DELAYQ_TEST_LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def note_run(**facts: Any) -> None:
    """Append the fields of the current job to the ledger."""
    job = current_job()
    due = job.due.timestamp()
    note("run", id=job.id, attempt=job.attempt, recovered=job.recovered, due=due, queue=job.queue, **facts)


def parent() -> int:
    """Return the worker that started this process for one job, dead or alive; 0 in a worker itself."""
    starter = multiprocessing.parent_process()
    return starter.pid or 0 if starter else 0


@delayed_task
def noop(*args: Any, **kwargs: Any) -> None:
    """Do nothing."""


@delayed_task
def record(*args: Any, **kwargs: Any) -> None:
    """Record that it ran, with its arguments."""
    note_run(args=args, kwargs=kwargs)


@delayed_task(retry=RetryPolicy(max_attempts=3, base=0.01, cap=0.02))
def fail(times: int = 1_000) -> None:
    """Fail the first `times` attempts."""
    note_run()
    if current_job().attempt <= times:
        raise ValueError("as asked")


@delayed_task(retry=RetryPolicy(max_attempts=3, base=0.01, cap=0.02))
def crash(how: str = "exit") -> None:
    """End the process that runs this; `leave` only raises SystemExit."""
    note_run(parent=parent(), how=how)
    if how == "exit":
        os._exit(9)
    elif how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "leave":
        raise SystemExit(3)
    elif how == "memory":
        exhaust_memory()
    else:
        ctypes.string_at(0)


def exhaust_memory() -> None:
    """Use all allowed memory, and crash as native code does when an allocation fails."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 64 * 1024**2,) * 2)
    while True:
        ctypes.memset(libc.malloc(ctypes.c_size_t(8 * 1024**2)), 1, 8 * 1024**2)


@delayed_task(retry=RetryPolicy(max_attempts=25, base=0.01, cap=0.05))
def work(seconds: float, fails: int = 0) -> None:
    """Record its start and its end, with some time in between; fail the first `fails` attempts."""
    job = current_job()
    note_run(parent=parent(), claimed=job._claim.claimed_us / 1_000_000)
    time.sleep(seconds)
    note("end", id=job.id, attempt=job.attempt, failed=job.attempt <= fails)
    if job.attempt <= fails:
        raise ValueError("as asked")


def note_acknowledged(job_id: str, attempt: int, decision: Decision, **_: Any) -> None:
    """Record that Redis acknowledged a job: from then on it must not run again."""
    if decision.action is Action.ACKNOWLEDGE:
        note("acknowledged", id=job_id, attempt=attempt)


job_finished.connect(note_acknowledged, sender=work)


def await_file(path: str) -> None:
    """Wait until the file exists: the gate of a test."""
    while not os.path.exists(path):
        time.sleep(0.01)


@delayed_task(retry=RetryPolicy(max_attempts=5, base=0.01, cap=0.02))
def wait_for(path: str) -> None:
    """Record that it runs, then wait until the file exists."""
    note_run()
    await_file(path)
    note("end", id=current_job().id)


@delayed_task
def catch_all() -> None:
    """Wait for an exception and end well in spite of it."""
    with contextlib.suppress(BaseException):
        note_run()
        signal.pause()


@delayed_task
def later(delay: float) -> None:
    """Request a retry after a delay at the first attempt."""
    note_run()
    if current_job().attempt == 1:
        raise RetryLater(delay)


@delayed_task
def give_up() -> None:
    """Become a dead letter at once."""
    raise DeadLetterNow("no use")


@delayed_task
def leave() -> None:
    """Try to end the worker."""
    raise SystemExit(3)


@delayed_task
async def record_async(value: int) -> None:
    """Record that a coroutine ran."""
    note_run(value=value)


@delayed_task(retry=RetryPolicy(max_attempts=3, base=0.01, cap=0.02))
def fail_until(path: str) -> None:
    """Fail as long as the file is missing."""
    note_run()
    if not os.path.exists(path):
        raise ValueError("as asked")


@delayed_task
def nap(seconds: float) -> None:
    """Occupy a slot for a while."""
    note_run()
    time.sleep(seconds)


@delayed_task(retry=RetryPolicy(max_attempts=5))
def tick(seconds: float) -> None:
    """Record every 5 ms that it still runs, for `seconds`."""
    note_run()
    job, until = current_job(), time.monotonic() + seconds
    while time.monotonic() < until:
        note("tick", id=job.id, attempt=job.attempt)
        # The time between two ticks.
        time.sleep(0.005)


@delayed_task
async def linger(seconds: float) -> None:
    """Record that it ran, and sleep in a thread for which the interpreter would wait at exit."""
    note_run()
    await asyncio.to_thread(time.sleep, seconds)


@delayed_task
def end_services() -> None:
    """Raise SystemExit in the service threads of this worker's shards, as a late time limit may."""
    for thread in threading.enumerate():
        if thread.name.startswith("Worker of"):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))


@delayed_task(hard_timeout=1, retry=RetryPolicy(max_attempts=1))
def promise_bytes() -> None:
    """Write the start of a message to every socket of this process, as a write to a closed descriptor may."""
    note_run()
    for descriptor in range(3, 256):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.write(descriptor, b"\x00\x10\x00\x00")


@delayed_task
def rest(seconds: float) -> None:
    """Occupy a slot for a while, and record nothing."""
    time.sleep(seconds)


@delayed_task
def signal_worker(number: int, path: str) -> None:
    """Record how many claims the workers hold, send this process a signal, then wait until the file exists."""
    shard = get_store().shards[0]
    note_run(held=shard.client.zcard(shard.keys("leases")))
    os.kill(os.getpid(), number)
    await_file(path)
    note("end", id=current_job().id)


@delayed_task(retry=RetryPolicy(max_attempts=3, base=0.01, cap=0.02))
def crash_then_start_process(path: str) -> None:
    """End the process in the first attempt; in the next, start a process as any task may."""
    note_run()
    if current_job().attempt == 1:
        os._exit(9)
    process = multiprocessing.get_context("spawn").Process(target=open, args=(path, "w"))
    process.start()
    process.join()


@delayed_task
def say(text: str) -> None:
    """Print, as user code does."""
    print(text)


@delayed_task
def say_by_all_means(text: str) -> None:
    """Print in this process and in a child process, and write to the descriptor itself."""
    print(text)
    os.write(1, f"{text}\n".encode())
    subprocess.run(["echo", text], check=True)


class Unprintable(Exception):
    """An error whose notes cannot be read, not even by `traceback`."""

    @property
    def __notes__(self) -> list[str]:
        raise ValueError("no notes")


@delayed_task(retry=RetryPolicy(max_attempts=1))
def fail_unprintably(how: str) -> None:
    """Fail with an error whose traceback cannot be formatted on some Pythons."""
    note_run()
    if how == "notes":
        raise Unprintable
    raise SyntaxError("as asked", ("f.py", 1, 2, b"bytes"))  # type: ignore[arg-type]


def wrapped(func: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function in a plain function, as many decorators do, even if it is a coroutine function."""

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return call


@delayed_task
@wrapped
async def record_wrapped(value: int) -> None:
    """Record that a coroutine ran to its end."""
    await asyncio.sleep(0)
    note_run(value=value)


@delayed_task
def chain(length: int) -> None:
    """Enqueue the next one, `length` times."""
    note_run(left=length)
    if length:
        chain.enqueue(length - 1)


@delayed_task
def fork_and_come_back(how: str) -> None:
    """Fork, and let the child leave this function too: by a return, by sys.exit(), by an error, or without stdout."""
    child = os.fork()
    if child:
        note("left", how=how, code=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    elif how == "exit":
        sys.exit(5)
    elif how == "mute":
        sys.stdout = None
    elif how == "error":
        raise ValueError("as asked")


@delayed_task
def end_child() -> None:
    """Start a process as multiprocessing does by default before Python 3.14, and end it by SIGTERM."""
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3_600,))
    child.start()
    child.terminate()
    child.join(30)
    note("ended", code=child.exitcode)
    child.kill()


@delayed_task
def fork_and_exit(seconds: float) -> None:
    """End the process that runs this, and leave a child that keeps all inherited descriptors open."""
    child = os.fork()
    if not child:
        time.sleep(seconds)
        os._exit(0)
    Path(os.environ["DELAYQ_TEST_LEDGER"]).write_text(str(child))
    os._exit(9)


@delayed_task
def close_and_nap(seconds: float) -> None:
    """Close all inherited descriptors, as programs that become daemons do, and continue."""
    os.closerange(3, 4_096)
    time.sleep(seconds)


@delayed_task
def write_to_descriptors() -> None:
    """Write an unreadable message to each descriptor that may be a pipe of the worker."""
    for descriptor in range(3, 4_096):
        with contextlib.suppress(OSError):
            os.write(descriptor, b"\0\0\0\4junk")


@delayed_task
def echo(value: Any) -> Any:
    """Return the argument."""
    return value
