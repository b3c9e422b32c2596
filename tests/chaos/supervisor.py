"""Crew: workers and dispatchers under a supervisor that starts anew whatever ends, as systemd does."""

import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from tests.chaos.case import Death
from tests.subprocesses import Command, Processes

WORKER, DISPATCHER = "run_worker", "run_dispatcher"
#: Seconds after which nothing of a dead process's group may live: suspects end with their worker.
LINGER = 30.0
#: How a worker ends that ran a poisonous task: by exit code 9, SIGKILL, SIGSEGV, or SIGABRT.
POISONED = (9, -signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT)


@dataclass(slots=True)
class SupervisedProcess:
    """One place in the crew, and who holds it."""

    role: str
    options: tuple[str, ...]
    command: Command
    born: float


class Supervisor:
    """So many workers and dispatchers, always."""

    def __init__(
        self, processes: Processes, *, workers: int, dispatchers: int, concurrency: int = 4, pool: str = "threads"
    ) -> None:
        self._processes = processes
        #: Whether jobs end the workers that run them.
        self.poisoned = False
        self.kills = self.restarts = 0
        #: Ends of workers, for the judge.
        self.deaths: list[Death] = []
        #: Ends that nobody ordered, errors that are bugs, processes that outlived their worker.
        self.complaints: list[str] = []
        self._buried: list[tuple[int, float]] = []
        options = ("--concurrency", str(concurrency), "--pool", pool)
        roles = [(WORKER, options)] * workers + [(DISPATCHER, ())] * dispatchers
        self.posts = [self._post(role, options) for role, options in roles]

    def tend(self) -> None:
        """Start anew what has ended by itself. To be called often: when it ended is not known better."""
        for post in list(self.posts):
            if post.command.running:
                continue
            code = post.command.process.returncode
            if not self._by_poison(post, code):
                self.complaints.append(f"{post.role} ended by itself, code {code}: {post.command.output[-800:]}")
            self._replace(post, died=time.time())
        while self._buried and self._buried[0][1] < time.time() - LINGER:
            self._look_for_orphans(self._buried.pop(0)[0])

    def pick(self, role: str, chance: random.Random) -> SupervisedProcess:
        """Return any post of a role."""
        return chance.choice([post for post in self.posts if post.role == role])

    def kill(self, post: SupervisedProcess, *, group: bool) -> None:
        """End a process by SIGKILL, alone or with all it started, and start it anew."""
        died = time.time()
        if group:
            post.command.send_all(signal.SIGKILL)
        post.command.kill()
        self.kills += 1
        self._replace(post, died=died)

    def finish(self) -> None:
        """End all in good order, once they hear signals: one that was started a moment ago would die of it."""
        for post in self.posts:
            self._processes.until(partial(_is_up, post.command), what=f"{post.role} to be up")
            post.command.send(signal.SIGTERM)
        for post in self.posts:
            code = post.command.wait()
            if code and not self._by_poison(post, code):
                self.complaints.append(f"{post.role} ended with code {code} on SIGTERM: {post.command.output[-800:]}")
            self._bury(post)

    def _by_poison(self, post: SupervisedProcess, code: int | None) -> bool:
        # Dispatchers run no task: whatever ends one is a fault.
        return self.poisoned and post.role == WORKER and code in POISONED

    def _post(self, role: str, options: tuple[str, ...]) -> SupervisedProcess:
        born = time.time()
        return SupervisedProcess(role, options, self._processes.start(role, *options), born)

    def _replace(self, post: SupervisedProcess, *, died: float) -> None:
        if post.role == WORKER:
            self.deaths.append(Death(pid=post.command.pid, born=post.born, at=died, gone=time.time()))
        self._bury(post)
        self.posts[self.posts.index(post)] = self._post(post.role, post.options)
        self.restarts += 1

    def _bury(self, post: SupervisedProcess) -> None:
        output = post.command.output
        if "this is a bug" in output:
            self.complaints.append(f"{post.role}: {output[output.index('this is a bug') - 200 :][:1500]}")
        self._processes.forget(post.command)
        self._buried.append((post.command.pid, time.time()))

    def _look_for_orphans(self, group: int) -> None:
        if any(post.command.pid == group for post in self.posts):
            return
        with suppress(ProcessLookupError):
            os.killpg(group, 0)
            found = subprocess.run(["ps", "-g", str(group), "-o", "pid,stat,args"], capture_output=True, text=True)
            os.killpg(group, signal.SIGKILL)
            self.complaints.append(f"{LINGER:g} s after a {WORKER}'s end there was still {found.stdout[:1000]}")


def _is_up(command: Command) -> bool:
    return " serves " in command.output or not command.running
