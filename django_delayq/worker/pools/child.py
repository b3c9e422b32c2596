"""Child: a process that runs claims, one at a time, so that its end can be blamed on exactly one job.

It is spawned, never forked: a fork of a process with threads may hold the lock of another thread forever.
"""

import os
import socket
import threading
from contextlib import ExitStack, suppress
from dataclasses import replace
from math import inf
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from time import monotonic, sleep
from typing import Any

import django

from django_delayq.job.job import Claim
from django_delayq.job.outcome import Outcome, OutcomeKind
from django_delayq.job.progress import Progress
from django_delayq.processes.fork_safety import install_signal_handler
from django_delayq.processes.memory import rss_bytes
from django_delayq.task.context import RunLink
from django_delayq.worker.execution import run, timed
from django_delayq.worker.pools.child_link import ChildLink
from django_delayq.worker.time_limit import watch

#: Seconds between two checks whether the process is alive.
_POLL_INTERVAL = 0.5
#: Seconds that a process may take to start, and to end once it is idle.
START_TIMEOUT, END_TIMEOUT = 60.0, 2.0


class ChildProcess:
    """One process. Its methods are for one thread at a time, except `kill_async()` and `disconnect()`."""

    def __init__(self, context: BaseContext) -> None:
        """Start the process. Raises OSError if the system has no room for it."""
        with ExitStack() as child_ends, ExitStack() as our_ends:
            self._pipe, pipe = context.Pipe()
            our_ends.enter_context(self._pipe), child_ends.enter_context(pipe)
            # The leases of claims to stop. Its end shows the child that the worker is gone.
            parent, self._parent = context.Pipe(duplex=False)
            child_ends.enter_context(parent), our_ends.enter_context(self._parent)
            self._process = context.Process(target=_main, args=(pipe, parent), name="delayq-child")  # type: ignore[attr-defined]
            self._process.start()
            our_ends.pop_all()
        #: The process has started and can run claims.
        self.ready = False
        #: The lease of the claim that it runs, or is about to.
        self.lease = b""
        self._lock = threading.Lock()
        self._stop_limit = _StopLimit(self, b"")
        #: Claims that it has run, and bytes in RAM after the last one.
        self.claims_run, self.rss = 0, 0

    def wait_ready(self) -> bool:
        """Wait until the process can run claims; returns False if it ended before, or took more than a minute."""
        try:
            if not self.ready and self._wait_reply(monotonic() + START_TIMEOUT):
                self._read_reply(inf)
                self.ready = True
        except (EOFError, OSError):
            self._process.join(_POLL_INTERVAL)
        return self.ready

    def run(self, claim: Claim, link: RunLink | None = None) -> Outcome:
        """Run a claim to its end, the end of the process, or the job's hard limit, which kills the process."""
        started_at = monotonic()
        until = started_at + claim.hard_limit
        unreadable = ""
        try:
            self._pipe.send(claim)
            if link is not None and link.should_stop:
                # It was asked to before this process had the claim.
                self._parent.send_bytes(claim.lease)
            while self._wait_reply(until):
                reply = self._read_reply(until)
                if isinstance(reply, Progress):
                    if link is not None:
                        link.report_progress(reply)
                    continue
                outcome, self.rss = reply
                self.claims_run += 1
                return outcome  # type: ignore[no-any-return]
        except (EOFError, OSError):
            # The process ended, or the task closed all descriptors, as daemons do, and runs on.
            self._wait_exit(until)
        except Exception as error:
            # The task wrote to a descriptor that is not its own.
            unreadable = f" Its answer could not be read: {type(error).__name__}."
        # The job is past its hard limit, or its process ended without a reply.
        self.kill()
        return timed(
            Outcome(kind=OutcomeKind.CRASHED, error=self._how_it_ended(claim.hard_limit) + unreadable), started_at
        )

    def stop(self, lease: bytes, seconds: float) -> None:
        """Show the code of a claim that it should stop, and kill the process after that many seconds.

        Does nothing if the process does not run the claim. A later call replaces the time. For any thread.
        """
        with self._lock:
            if self.lease != lease:
                return
            # The process may have ended; then the claim ends anyway.
            with suppress(OSError):
                self._parent.send_bytes(lease)
            self._stop_limit.active = False
            self._stop_limit = limit = _StopLimit(self, lease)
        watch(monotonic() + seconds, limit)

    def kill_at(self, limit: "_StopLimit") -> None:
        """Kill the process without waiting, unless the claim has ended or a later stop replaced the limit."""
        with self._lock:
            if limit.active and self.lease == limit.lease:
                self.kill_async()

    def release(self) -> None:
        """Record that the claim has ended: nobody stops the next one in its place."""
        with self._lock:
            self.lease = b""

    @property
    def alive(self) -> bool:
        """Whether the process can run another claim."""
        return self._is_running and not self._pipe.closed

    @property
    def _is_running(self) -> bool:
        if not self._process.is_alive():
            return False
        # A task in a thread of the worker may collect the exit code of any child. multiprocessing then never learns
        # that the process has ended, and a job without a hard limit would wait for it forever.
        try:
            os.kill(self._process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def end(self) -> None:
        """Let an idle process run its exit handlers and end. It is killed after END_TIMEOUT. Does not wait."""
        # The process may have ended.
        with suppress(OSError):
            self._pipe.send(None)
        # It also closes the pipes of a process that has ended.
        watch(monotonic() + END_TIMEOUT, _EndLimit(self))

    def join(self, until: float) -> None:
        """Wait until the process has ended, or until that moment of `time.monotonic()`."""
        self._process.join(max(0.0, until - monotonic()))

    def kill(self) -> None:
        """Kill the process, wait for its end, and close the pipes."""
        self._process.kill()
        self._process.join()
        self.close_pipes()

    def close_pipes(self) -> None:
        """Close the pipes to a process that is killed, or has ended."""
        # A job may have closed their descriptors.
        with suppress(OSError):
            self._pipe.close()
        with suppress(OSError):
            self._parent.close()

    def kill_async(self) -> None:
        """Kill the process without waiting, from any thread; the thread that waits for its reply cleans up."""
        self._process.kill()

    def disconnect(self) -> None:
        """Kill the process and shut its pipe down, from any thread. A `recv()` that waits on it raises EOFError."""
        self.kill_async()
        with suppress(OSError), socket.socket(fileno=os.dup(self._pipe.fileno())) as pipe:
            # Closing would not do: a process that the task forked may hold the other end open.
            pipe.shutdown(socket.SHUT_RDWR)

    def _read_reply(self, until: float) -> Any:
        """Return the reply that has begun to arrive; kill the process if the rest takes a minute, or until `until`."""
        limit = _ReplyLimit(self)
        watch(min(until, monotonic() + START_TIMEOUT), limit)
        try:
            return self._pipe.recv()
        finally:
            limit.disarm()

    def _wait_reply(self, until: float) -> bool:
        """Wait for a reply, the end of the process, or `until`; returns True for a reply or a closed pipe."""
        # In intervals: a process that the task forked also has the pipe open, so the pipe may outlive the child.
        while not wait([self._pipe], max(0.0, min(_POLL_INTERVAL, until - monotonic()))):
            if monotonic() >= until or not (self._is_running or self._pipe.poll()):
                return False
        return True

    def _wait_exit(self, until: float) -> None:
        # Not join(): it waits for another pipe to close, which the task has closed too, and then has no limit.
        pause = 0.001
        while self._is_running and monotonic() < until:
            sleep(min(pause, max(0.0, until - monotonic())))
            pause = min(_POLL_INTERVAL, 2 * pause)

    def _how_it_ended(self, hard_limit: float) -> str:
        code = self._process.exitcode
        if code is None:
            return "The process running the task ended before the task did, and other code collected its exit code."
        if code < 0:
            limit = f", or ran longer than its hard limit of {hard_limit:g} s" if hard_limit < inf else ""
            return f"The process running the task was killed by signal {-code}{limit}."
        return f"The process running the task ended with exit code {code} before the task did."


class _ReplyLimit:
    """The time limit of one reply: a task that writes to the pipe may announce more bytes than ever arrive."""

    def __init__(self, child: ChildProcess) -> None:
        self._child = child
        self._lock = threading.Lock()
        self.active = True

    def disarm(self) -> None:
        """Lift the limit: the reply is complete."""
        with self._lock:
            self.active = False

    def expire(self) -> None:
        """Disconnect the child, unless the reply is complete."""
        with self._lock:
            if self.active:
                self._child.disconnect()


class _StopLimit:
    """The time that a claim has to stop."""

    def __init__(self, child: ChildProcess, lease: bytes) -> None:
        self._child, self.lease = child, lease
        #: No later stop replaced it.
        self.active = True

    def expire(self) -> None:
        """Kill the child, unless the claim has ended."""
        self._child.kill_at(self)


class _EndLimit:
    """The time that an idle child has to end."""

    #: Even a child that has ended has pipes to close.
    active = True

    def __init__(self, child: ChildProcess) -> None:
        self._child = child

    def expire(self) -> None:
        """Kill the child if it has not ended, and close its pipes."""
        self._child.kill_async()
        # Collect the exit code of one that has ended. multiprocessing collects the others when a process starts.
        self._child.join(monotonic())
        self._child.close_pipes()


def _main(pipe: Connection, parent: Connection) -> None:
    # A terminal and systemd signal the whole process group, but the worker decides when a job ends. Not SIG_IGN:
    # programs that the task starts would inherit that.
    install_signal_handler(lambda *_: None)
    # A task may run for hours: only another thread notices meanwhile that the worker is gone, and its leases with it.
    stops: set[bytes] = set()
    threading.Thread(target=_listen_to_parent, args=(parent, stops), daemon=True).start()
    django.setup()
    pipe.send(None)
    while True:
        try:
            claim = pipe.recv()
        except (EOFError, OSError):
            os._exit(1)
        if claim is None:
            # The interpreter runs the exit handlers.
            return
        link = ChildLink(claim.lease, pipe, stops)
        outcome = run(claim, link)
        if outcome.raised is not None:
            # Its class may not be picklable, and the worker must not run its code.
            outcome = replace(outcome, raised=None)
        link.end((outcome, rss_bytes()))
        stops.discard(claim.lease)


def _listen_to_parent(parent: Connection, stops: set[bytes]) -> None:
    """Record the leases of claims to stop; end this process with the worker."""
    with suppress(EOFError, OSError):
        while True:
            # It may arrive before its claim.
            stops.add(parent.recv_bytes())
    os._exit(1)
