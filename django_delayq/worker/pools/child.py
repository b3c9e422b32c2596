"""Child: a process that runs claims, one at a time, and can only kill itself: blame for its end is exact.

Never forked from the worker: a fork of a process with threads may hold somebody's lock for ever.
"""

import os
import socket
import threading
from contextlib import ExitStack, suppress
from math import inf
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from time import monotonic, sleep
from typing import Any

import django

from django_delayq.clock import SECOND_US
from django_delayq.job.job import Claim
from django_delayq.job.outcome import Outcome, OutcomeKind
from django_delayq.processes.fork_safety import install_signal_handler
from django_delayq.processes.memory import rss_bytes
from django_delayq.worker.execution import run
from django_delayq.worker.time_limit import watch

#: Seconds between two looks whether the process still lives; and those it may take to come up.
_TURN, BOOT = 0.5, 60.0


class ChildProcess:
    """One process. Its methods are for one thread at a time, but for `kill()`."""

    def __init__(self, context: BaseContext) -> None:
        """Start it; raises OSError where the system has no room for it."""
        with ExitStack() as theirs, ExitStack() as ours:
            self._pipe, pipe = context.Pipe()
            ours.enter_context(self._pipe), theirs.enter_context(pipe)
            # Nothing is ever written: its end tells the child that the worker is gone, and the leases with it.
            end, self._life = context.Pipe(duplex=False)
            theirs.enter_context(end), ours.enter_context(self._life)
            self._process = context.Process(target=_live, args=(pipe, end), name="delayq-child")  # type: ignore[attr-defined]
            self._process.start()
            ours.pop_all()
        #: It can run claims.
        self.up = False
        #: Claims it has run, and bytes of memory it had after the last one.
        self.ran, self.rss = 0, 0

    def wait_ready(self) -> bool:
        """Wait until it can run claims; false for one that ended before, or took more than a minute."""
        try:
            if not self.up and self._answered(monotonic() + BOOT):
                self._receive(inf)
                self.up = True
        except (EOFError, OSError):
            self._process.join(_TURN)
        return self.up

    def run(self, claim: Claim) -> Outcome:
        """Run a claim to its end, the process's end, or the job's hard time limit; the last two are its end too."""
        started = monotonic()
        until = started + claim.hard_limit
        unreadable = ""
        try:
            self._pipe.send(claim)
            if self._answered(until):
                outcome, self.rss = self._receive(until)
                self.ran += 1
                return outcome  # type: ignore[no-any-return]
        except (EOFError, OSError):
            # It ended, or its task closed all descriptors, as daemons do, and runs on.
            self._wait_for_end(until)
        except Exception as error:
            # Its task wrote to a descriptor that is not its own.
            unreadable = f" Its answer could not be read: {type(error).__name__}."
        # Open pipe, no answer: over its hard limit. Closed pipe: it ended without one.
        self.kill()
        run_us = int((monotonic() - started) * SECOND_US)
        return Outcome(
            kind=OutcomeKind.CRASHED,
            error=self._how_it_ended(claim.hard_limit) + unreadable,
            run_us=run_us,
            began=started,
        )

    @property
    def alive(self) -> bool:
        """Whether it can run another claim."""
        return self._process.is_alive() and not self._pipe.closed

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.join()
        self._pipe.close()
        self._life.close()

    def kill_async(self) -> None:
        """Send it the signal that ends it, from any thread; whoever waits for its answer cleans up."""
        self._process.kill()

    def hang_up(self) -> None:
        """Kill the process and close its pipe, from any thread. A `recv()` that waits on the pipe raises EOFError."""
        self.kill_async()
        with suppress(OSError), socket.socket(fileno=os.dup(self._pipe.fileno())) as ours:
            # What the task forked may hold the other end open.
            ours.shutdown(socket.SHUT_RDWR)

    def _receive(self, until: float) -> Any:
        """Return the answer that has begun. One that does not end within a minute, or by `until`, ends the process."""
        limit = _Unended(self)
        watch(min(until, monotonic() + BOOT), limit)
        try:
            return self._pipe.recv()
        finally:
            limit.disarm()

    def _answered(self, until: float) -> bool:
        """Wait for an answer, the process's end, or the time; true for an answer or a closed pipe."""
        # In turns: what the task forked holds the pipe open too, so its end alone does not tell of the process's.
        while not wait([self._pipe], max(0.0, min(_TURN, until - monotonic()))):
            if monotonic() >= until or not (self._process.is_alive() or self._pipe.poll()):
                return False
        return True

    def _wait_for_end(self, until: float) -> None:
        # Not join(): it waits for the end of another pipe, which the task has closed too, and then without a limit.
        pause = 0.001
        while self._process.is_alive() and monotonic() < until:
            sleep(min(pause, max(0.0, until - monotonic())))
            pause = min(_TURN, 2 * pause)

    def _how_it_ended(self, hard_limit: float) -> str:
        code = self._process.exitcode
        if code is not None and code < 0:
            limit = f", or ran longer than its hard limit of {hard_limit:g} s" if hard_limit < inf else ""
            return f"The process running the task was killed by signal {-code}{limit}."
        return f"The process running the task ended with exit code {code} before the task did."


class _Unended:
    """The limit of an answer: its task may have written to the pipe, and promised more bytes than ever come."""

    def __init__(self, child: ChildProcess) -> None:
        self._child = child
        self._lock = threading.Lock()
        self.armed = True

    def disarm(self) -> None:
        """Let the child live: the answer is there."""
        with self._lock:
            self.armed = False

    def expire(self) -> None:
        """End the child, unless the answer is there."""
        with self._lock:
            if self.armed:
                self._child.hang_up()


def _live(pipe: Connection, life: Connection) -> None:
    # A terminal and systemd signal the whole group; when a job has to end is the worker's decision. Not SIG_IGN:
    # programs that the task starts would inherit that.
    install_signal_handler(lambda *_: None)
    # A task may run for hours: only another thread notices meanwhile that nobody waits for its end any more.
    threading.Thread(target=_end_with_parent, args=(life,), daemon=True).start()
    django.setup()
    pipe.send(None)
    while True:
        try:
            claim = pipe.recv()
        except (EOFError, OSError):
            os._exit(1)
        pipe.send((run(claim), rss_bytes()))


def _end_with_parent(life: Connection) -> None:
    with suppress(EOFError, OSError):
        life.recv_bytes()
    os._exit(1)
