"""Supervisor: a fixed number of workers and dispatchers. It restarts each process that ends, as systemd does."""

import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from tests.chaos.harness.case import Death
from tests.subprocesses import Command, Processes

WORKER, DISPATCHER = "run_worker", "run_dispatcher"
#: Seconds after which no process of a dead worker's group may live. Recovery processes end with their worker.
ORPHAN_TIMEOUT = 30.0
#: Exit codes of a worker that ran a poison job: 9, SIGKILL, SIGSEGV, or SIGABRT.
CRASH_CODES = (9, -signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT)


@dataclass(slots=True)
class SupervisedProcess:
    """One slot of the supervisor, and the process in it."""

    role: str
    options: tuple[str, ...]
    command: Command
    started_at: float


class Supervisor:
    """Keeps a fixed number of workers and dispatchers running."""

    def __init__(
        self, processes: Processes, *, workers: int, dispatchers: int, concurrency: int = 4, pool: str = "threads"
    ) -> None:
        self._processes = processes
        #: Whether jobs may end the workers that run them.
        self.expects_crashes = False
        self.kills = self.restarts = 0
        #: Ends of workers, for the checker.
        self.deaths: list[Death] = []
        #: Unexpected exits, logged bugs, and processes that outlived their worker.
        self.errors: list[str] = []
        self._retired: list[tuple[int, float]] = []
        options = ("--concurrency", str(concurrency), "--pool", pool)
        roles = [(WORKER, options)] * workers + [(DISPATCHER, ())] * dispatchers
        self.slots = [self._start(role, options) for role, options in roles]

    def restart_ended(self) -> None:
        """Restart ended processes. Call it often: the call that notices an end also dates it."""
        for slot in list(self.slots):
            if slot.command.running:
                continue
            code = slot.command.process.returncode
            if not self._is_expected_crash(slot, code):
                self.errors.append(f"{slot.role} ended by itself, code {code}: {slot.command.output[-800:]}")
            self._replace(slot, died=time.time())
        while self._retired and self._retired[0][1] < time.time() - ORPHAN_TIMEOUT:
            self._kill_orphans(self._retired.pop(0)[0])

    def pick(self, role: str, rng: random.Random) -> SupervisedProcess:
        """Return a random slot of a role."""
        return rng.choice([slot for slot in self.slots if slot.role == role])

    def kill(self, slot: SupervisedProcess, *, group: bool) -> None:
        """Kill a process by SIGKILL, alone or with its group, and start it again."""
        died = time.time()
        if group:
            slot.command.send_all(signal.SIGKILL)
        slot.command.kill()
        self.kills += 1
        self._replace(slot, died=died)

    def finish(self) -> None:
        """Stop all processes. Each must have installed its signal handlers first, or SIGTERM would kill it."""
        for slot in self.slots:
            self._processes.until(partial(_is_up, slot.command), what=f"{slot.role} to start")
            slot.command.send(signal.SIGTERM)
        for slot in self.slots:
            code = slot.command.wait()
            if code and not self._is_expected_crash(slot, code):
                self.errors.append(f"{slot.role} ended with code {code} on SIGTERM: {slot.command.output[-800:]}")
            self._retire(slot)

    def _is_expected_crash(self, slot: SupervisedProcess, code: int | None) -> bool:
        # Dispatchers run no tasks, so any end of one is an error.
        return self.expects_crashes and slot.role == WORKER and code in CRASH_CODES

    def _start(self, role: str, options: tuple[str, ...]) -> SupervisedProcess:
        started_at = time.time()
        return SupervisedProcess(role, options, self._processes.start(role, *options), started_at)

    def _replace(self, slot: SupervisedProcess, *, died: float) -> None:
        if slot.role == WORKER:
            self.deaths.append(Death(pid=slot.command.pid, started_at=slot.started_at, at=died, gone=time.time()))
        self._retire(slot)
        self.slots[self.slots.index(slot)] = self._start(slot.role, slot.options)
        self.restarts += 1

    def _retire(self, slot: SupervisedProcess) -> None:
        output = slot.command.output
        if "this is a bug" in output:
            self.errors.append(f"{slot.role}: {output[output.index('this is a bug') - 200 :][:1500]}")
        self._processes.forget(slot.command)
        self._retired.append((slot.command.pid, time.time()))

    def _kill_orphans(self, group: int) -> None:
        if any(slot.command.pid == group for slot in self.slots):
            return
        with suppress(ProcessLookupError):
            os.killpg(group, 0)
            found = subprocess.run(["ps", "-g", str(group), "-o", "pid,stat,args"], capture_output=True, text=True)
            os.killpg(group, signal.SIGKILL)
            self.errors.append(f"{ORPHAN_TIMEOUT:g} s after a {WORKER}'s end there was still {found.stdout[:1000]}")


def _is_up(command: Command) -> bool:
    return " serves " in command.output or not command.running
