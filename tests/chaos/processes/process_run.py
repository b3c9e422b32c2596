"""Process run: one process from start to end, with its own database, its own proxy and its own ledger.

Processes are forked from a server that has imported Django. A start costs 0.04 s of CPU time instead of 0.5 s.
"""

import json
import multiprocessing
import os
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import django
import django.__main__
from django.conf import settings as django_settings
from django.core.management import call_command

from django_delayq import enqueue_many
from django_delayq.clock import ServerClock
from django_delayq.job.attempts import AttemptHistory
from django_delayq.store.records import DeadLetterRecord
from django_delayq.task.handle import JobHandle
from tests.chaos.network.proxy import Proxy
from tests.one_by_one import one_by_one
from tests.shard_apis import ShardApis
from tests.stateful.redis_state import read
from tests.subprocesses import PATIENCE, until

FORKS = multiprocessing.get_context("forkserver")
#: Held for every use of a process object. Each start polls all processes, and an exit code can be read only once.
LOCK = threading.Lock()
#: Seconds. Shorter leases expire on a machine with twice as many busy processes as cores.
LEASE = 2
#: More seconds for each job in `finish`: the process of a suspected crasher starts slowly, and ten runs are parallel.
PER_JOB = 10.0


# In the forked processes


def set_up(delayq: dict[str, Any], ledger: str) -> None:
    """Set up the forked process like one that `python -m django` starts."""
    os.setsid()
    output = os.open(f"{ledger}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for number in (1, 2):
        os.dup2(output, number)
    os.environ["DELAYQ_TEST_LEDGER"] = ledger
    # The process of a suspected crasher is spawned and imports the main module, which must not be pytest.
    sys.modules["__main__"] = django.__main__
    django.setup()
    django_settings.DELAYQ = delayq


def run_command(delayq: dict[str, Any], ledger: str, *arguments: str) -> None:
    """Run a worker or a dispatcher."""
    set_up(delayq, ledger)
    call_command(*arguments)


def finish(delayq: dict[str, Any], ledger: str, *options: str) -> None:
    """Run a dispatcher and a worker in one process."""
    set_up(delayq, ledger)
    threading.Thread(target=call_command, args=("run_dispatcher",), daemon=True).start()
    call_command("run_worker", *options)


def produce(delayq: dict[str, Any], ledger: str, steps: Sequence[tuple[str, Any, dict[str, Any]]]) -> None:
    """Run a producer that takes these steps: batches of jobs to enqueue, and operations on single jobs."""
    set_up(delayq, ledger)
    for word, subject, options in steps:
        if word == "enqueue":
            enqueue_many(subject)
        else:
            getattr(one_by_one(), word)(subject, **options)


# Process runs


class ProcessRun:
    """The processes of one run, which share a database and a ledger."""

    def __init__(self, url: str, ledger: Path, **delayq: Any) -> None:
        self.proxy, self.ledger = Proxy(url), ledger
        self.delayq = {"REDIS": url, "LEASE": LEASE, "GRACE": 0.1, "CONCURRENCY": 2, **delayq}
        self.apis = ShardApis(
            url, clock=ServerClock(), **{name: self.delayq[name] for name in self.delayq.keys() - {"REDIS"}}
        )
        self.gate = Path(f"{ledger}.gate")
        self._processes: list[Any] = []

    def __enter__(self) -> Self:
        self.apis.client.flushdb()
        self.proxy.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            self.kill(process)
        self.proxy.__exit__()
        self.apis.client.flushdb()
        self.apis.close()

    def start(self, target: Callable[..., None], *arguments: Any, url: str = "") -> Any:
        """Fork a process."""
        delayq = {**self.delayq, "REDIS": url or self.delayq["REDIS"]}
        self._processes.append(FORKS.Process(target=target, args=(delayq, str(self.ledger), *arguments)))
        with LOCK:
            self._processes[-1].start()
        return self._processes[-1]

    def code(self, process: Any) -> int | None:
        """Return the exit code of a process, or None while it runs."""
        with LOCK:
            return process.exitcode

    def kill(self, process: Any) -> None:
        """Kill a process by SIGKILL and wait for its end."""
        with LOCK:
            process.kill()
        self.until(lambda: self.code(process) is not None, what="a killed process's end")

    def run_process(
        self, target: Callable[..., None], *arguments: Any, kill: tuple[int, bool], settled: Any = None
    ) -> bool:
        """Run a process until it is killed, or until `settled` returns true and SIGTERM has stopped it.

        `kill` is the number of the request, and whether the kill comes after it. Returns whether it killed the process.
        """
        started, number = threading.Event(), 0

        def kill_process() -> None:
            assert started.wait(30)
            os.kill(number, signal.SIGKILL)

        self.proxy.kill_at(kill[0], kill_process, after=kill[1])
        process = self.start(target, *arguments, url=self.proxy.url)
        number = process.pid
        started.set()
        if settled is not None:
            self.until(lambda: self.proxy.killed.is_set() or settled(), what="the jobs to be settled")
            with LOCK:
                process.terminate()
        self.until(lambda: self.code(process) is not None and not self.proxy.connections, what="the process's end")
        # The kill can come after the end of the process, if the reply to its blocking pop arrives then.
        killed = self.code(process) == -signal.SIGKILL
        assert self.code(process) == 0 or (killed and self.proxy.killed.is_set()), self.details()
        return killed

    def finish(self, *options: str, ended: Callable[[], Any] | None = None) -> "RedisState":
        """Finish all jobs with another process, or run it until `ended` returns true. Returns the final state."""
        process, patience = self.start(finish, *options), PATIENCE + PER_JOB * len(self.bodies())
        self.until(ended or (lambda: not self.bodies()), what="all jobs to end", patience=patience)
        self.kill(process)
        return RedisState(self.apis)

    def send(self, *handles: JobHandle) -> None:
        """Enqueue jobs from this process."""
        self.apis.enqueue(*(handle.draft for handle in handles if handle.draft))

    def runs(self, handle: JobHandle | None = None) -> list[dict[str, Any]]:
        """Return the runs in the ledger, of one job if it is given."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        runs = [event for event in map(json.loads, lines) if event["word"] == "run"]
        return [run for run in runs if handle is None or run["id"] == handle.id]

    def bodies(self) -> set[bytes]:
        """Return the ids of all jobs that have neither ended nor died."""
        return set(self.apis.client.hkeys(self.apis.keys("jobs")))

    def until(self, look: Callable[[], Any], *, what: str, patience: float = PATIENCE) -> Any:
        """Wait for a condition."""
        return until(look, what=what, patience=patience, details=self.details)

    def details(self) -> str:
        """Return the output of the processes, for failure messages."""
        log = Path(f"{self.ledger}.log")
        ran = "\n".join(map(str, self.runs()[-20:]))
        return f"{self.ledger.name}: {self.proxy.commands}\n{ran}\n{log.read_text()[-3000:] if log.exists() else ''}"


class RedisState:
    """A consistent database, read while no process runs."""

    def __init__(self, apis: ShardApis) -> None:
        # `read` checks that every key is in the catalogue and has its type, and that none has a TTL.
        self.values = {name.removeprefix(apis.keys("")): value for name, value in read(apis.client, apis.keys).items()}
        self.places: dict[bytes, list[str]] = defaultdict(list)
        for name, value in self.values.items():
            if name.split(":")[0] in ("scheduled", "ready", "recovered", "leases", "dead_letters"):
                for member in value:
                    self.places[member[:12]].append(name)
        assert [places for places in self.places.values() if len(places) > 1] == []
        dead = self.at("dead_letters")
        living = set(self.places) - dead
        assert self.ids("jobs") == living
        assert self.ids("dead_bodies") == dead
        assert self.ids("claim_records") == self.at("leases")
        assert self.ids("attempts") <= living
        assert (
            {member[:12] for member in self.values.get("unique_keys", {}).values()} == self.ids("job_extras") <= living
        )

    def at(self, *places: str) -> set[bytes]:
        """Return the ids of the jobs in these places."""
        return {raw_id for raw_id, [place] in self.places.items() if place in places}

    def ids(self, noun: str) -> set[bytes]:
        """Return the ids that are fields of a hash."""
        return set(self.values.get(noun, {}))

    def lease_end(self, handle: JobHandle) -> float | None:
        """Return the end of a job's lease in seconds, or None if it has no lease."""
        ends = [end for lease, end in self.values.get("leases", {}).items() if lease[:12] == raw(handle)]
        return ends[0] / 1_000_000 if ends else None

    def attempts(self, handle: JobHandle) -> AttemptHistory:
        """Return the ended attempts of a job, which may be dead."""
        stored = self.values.get("dead_bodies", {}).get(raw(handle))
        if stored is not None:
            return AttemptHistory.unpack(DeadLetterRecord.unpack(stored).attempts)
        return AttemptHistory.unpack(self.values.get("attempts", {}).get(raw(handle)))


def raw(handle: JobHandle) -> bytes:
    """Return the raw id of a job, as Redis stores it."""
    return bytes.fromhex(handle.id.split("-")[0])
