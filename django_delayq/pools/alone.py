"""Alone: run one claim in a process of its own.

A suspect may kill the process it runs in. Alone in one, it can only kill itself: blame is exact, and no innocent job of
the same worker dies of a neighbour. Spawned, not forked: a fork of a process with threads may hold somebody's lock for
ever.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from math import inf
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from time import monotonic

import django

from django_delayq.clock import SECOND_US
from django_delayq.execution import run
from django_delayq.job import Claim
from django_delayq.outcome import UNSTARTED, Ending, Outcome

#: Seconds between two looks whether the process still lives; and those it may take to come up.
_TURN, _BOOT = 0.5, 60.0
_context = multiprocessing.get_context("spawn")


class Alone:
    """Processes that run one claim each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: set[BaseProcess] = set()
        self._closed = threading.Event()

    def run(self, claim: Claim, may_begin: Callable[[], bool]) -> Outcome:
        """Run the claim to its end, its process's end, or its hard time limit.

        Takes about half a second more than the task. `may_begin` is asked once the process is up: in that time the
        lease may be lost, or this process end, and then nobody answers it.
        """
        try:
            ours, theirs = _context.Pipe()
        except OSError as error:
            return _not_started(error)
        process = _context.Process(target=_child, args=(theirs,), name="delayq-suspect")
        with self._lock:
            if self._closed.is_set():
                return UNSTARTED
            try:
                process.start()
            except OSError as error:
                return _not_started(error)
            self._processes.add(process)
        theirs.close()
        started = monotonic()
        limit_us = claim.job.give_up_us if claim.job else None
        outcome: Outcome | None = None
        try:
            if _answered(process, ours, started + _BOOT):
                ours.recv()
                if not may_begin():
                    return UNSTARTED
                ours.send(claim)
                started = monotonic()
                if _answered(process, ours, inf if limit_us is None else started + limit_us / SECOND_US):
                    outcome = ours.recv()
        except (EOFError, OSError):
            process.join()
        finally:
            # Open pipe, no answer: over its hard limit. Closed pipe: it ended without one.
            process.kill()
            process.join()
            ours.close()
            with self._lock:
                self._processes.discard(process)
        if outcome is not None:
            return outcome
        run_us = int((monotonic() - started) * SECOND_US)
        if self._closed.is_set():
            reason = "The worker was stopped before the task ended."
            return Outcome(ending=Ending.INTERRUPTED, error=reason, run_us=run_us)
        return Outcome(ending=Ending.CRASHED, error=_how_it_ended(process, limit_us), run_us=run_us)

    def close(self) -> None:
        """Kill what runs: a job that is given back must not run on."""
        with self._lock:
            self._closed.set()
            for process in self._processes:
                process.kill()


def _not_started(error: OSError) -> Outcome:
    return Outcome(ending=Ending.FAILED, error=f"No process could be started for the task: {error}")


def _answered(process: BaseProcess, pipe: Connection, until: float) -> bool:
    """Wait for an answer, the process's end, or the time; true for an answer or a closed pipe."""
    # In turns: what the task forked holds the pipe open too, so its end alone does not tell of the process's.
    while not wait([pipe], max(0.0, min(_TURN, until - monotonic()))):
        if monotonic() >= until or not (process.is_alive() or pipe.poll()):
            return False
    return True


def _how_it_ended(process: BaseProcess, limit_us: int | None) -> str:
    code = process.exitcode
    if code is not None and code < 0:
        limit = f", or ran longer than its hard limit of {limit_us / SECOND_US:g} s" if limit_us is not None else ""
        return f"The process running the task was killed by signal {-code}{limit}."
    return f"The process running the task ended with exit code {code} before the task did."


def _child(pipe: Connection) -> None:
    # A terminal and systemd signal the whole group; when the job has to end is the worker's decision. Not SIG_IGN:
    # programs that the task starts would inherit that.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    django.setup()
    pipe.send(None)
    try:
        claim = pipe.recv()
    except (EOFError, OSError):
        os._exit(1)
    threading.Thread(target=_end_with_parent, args=(pipe,), daemon=True).start()
    pipe.send(run(claim))


def _end_with_parent(pipe: Connection) -> None:
    """The worker writes no more; the end of its side means that it is gone, and its lease with it."""
    try:
        pipe.recv_bytes()
    except (EOFError, OSError):
        os._exit(1)
