"""Children: tasks that start processes, other jobs and loops."""

import asyncio
import contextlib
import inspect
import multiprocessing
import os
import subprocess
import sys
import time
import warnings

from django.db import transaction

from django_delayq import enqueue_many
from tests.sample_app.misbehaving.kinds import PLAIN, kind
from tests.sample_app.tasks import noop


@kind(PLAIN)
def fork_and_leave() -> None:
    """Fork, and let the child end as a task ends."""
    os.fork()


@kind(PLAIN)
def fork_and_raise() -> None:
    """Fork, and let both raise."""
    os.fork()
    raise ValueError("both")


@kind(PLAIN)
def become_daemon() -> None:
    """Fork twice as daemons do, and close all descriptors in the last process."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(0, 4_096)
    # The daemon outlives the attempt that started it.
    time.sleep(0.5)
    os._exit(0)


@kind(PLAIN)
def start_programs() -> None:
    """Start programs and do not wait for them."""
    with warnings.catch_warnings():
        subprocess.Popen(["true"])
        multiprocessing.get_context("fork").Process(target=time.sleep, args=(0.2,), daemon=False).start()


@kind(PLAIN)
def wait_for_any_child() -> None:
    """Collect the exit code of any child that has ended, even one that it did not start."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


@kind(PLAIN)
def enqueue_much() -> None:
    """Enqueue jobs, valid and invalid ones."""
    enqueue_many([noop.job(number) for number in range(50)])
    with transaction.atomic():
        noop.enqueue()
        raise ValueError("rolled back")


@kind(PLAIN)
def run_own_loop() -> None:
    """Run loops of its own, and leave one set."""
    asyncio.run(asyncio.sleep(0))
    asyncio.set_event_loop(asyncio.new_event_loop())


@kind(PLAIN)
def look_around() -> None:
    """Touch the frames of all other threads."""
    for frame in sys._current_frames().values():
        inspect.getframeinfo(frame)
