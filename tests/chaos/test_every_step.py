"""Every step: a process is killed at its k-th request, before and after Redis ran it, for every k of its life.

Each life has a database, a proxy and a ledger of its own; another process, which no proxy cuts, finishes its work.
Processes are forked from one that has imported Django: a start costs 0.04 s of computing instead of 0.5 s.
"""

import json
import multiprocessing
import os
import queue
import random
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Self

import django
import django.__main__
import pytest
from django.conf import settings as django_settings
from django.core.management import call_command

from django_delayq import RetryPolicy, enqueue_many, get_store
from django_delayq.attempts import Attempts
from django_delayq.clock import ServerClock
from django_delayq.handle import JobHandle
from django_delayq.private_redis import PrivateRedis
from django_delayq.store.scripts import Script
from tests.app import tasks
from tests.chaos.proxy import Proxy
from tests.doors import Doors
from tests.machine.picture import read
from tests.processes import ROOT, until

#: Lives at once, each in one of the server's 16 databases.
WIDTH = 10
#: Requests in a life, at most: a walk beyond would never end.
LONGEST = 250
FORKS = multiprocessing.get_context("forkserver")
#: Held around every use of a process object: each start looks after all processes, and an exit code is read once.
FORKING = threading.Lock()
#: SHA -> name of each script.
SCRIPTS = {
    Script(name).sha: name
    for name in (
        *("enqueue", "promote", "exchange", "reclaim", "heartbeat"),
        *("cancel", "reschedule", "move", "requeue", "discard"),
    )
}
#: Seconds; on a machine with twice as many busy processes as cores, shorter ones run out.
LEASE = 2
TWICE = RetryPolicy(max_attempts=2, base=0.01, cap=0.02)
PATIENT = RetryPolicy(max_attempts=6, base=0.01, cap=0.02)


SEED = int(os.environ.get("DELAYQ_CHAOS_SEED") or random.randrange(1_000_000))


# In the forked processes


def begin(delayq: dict[str, Any], ledger: str) -> None:
    """Become a process such as `python -m django` starts."""
    os.setsid()
    output = os.open(f"{ledger}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for number in (1, 2):
        os.dup2(output, number)
    os.environ["DELAYQ_TEST_LEDGER"] = ledger
    # A suspect's process is not forked and imports the main module: it should not import all of pytest.
    sys.modules["__main__"] = django.__main__
    django.setup()
    django_settings.DELAYQ = delayq


def run_command(delayq: dict[str, Any], ledger: str, *arguments: str) -> None:
    """Be a worker or a dispatcher."""
    begin(delayq, ledger)
    call_command(*arguments)


def finish(delayq: dict[str, Any], ledger: str, *options: str) -> None:
    """Be a dispatcher and a worker at once."""
    begin(delayq, ledger)
    threading.Thread(target=call_command, args=("run_dispatcher",), daemon=True).start()
    call_command("run_worker", *options)


def produce(delayq: dict[str, Any], ledger: str, steps: Sequence[tuple[str, Any, dict[str, Any]]]) -> None:
    """Be a producer who takes these steps: batches of jobs to send, and operations on single jobs."""
    begin(delayq, ledger)
    for word, subject, options in steps:
        if word == "enqueue":
            enqueue_many(subject)
        else:
            getattr(get_store().operations(0), word)(subject, **options)


# Lives


class Life:
    """What one process does from its start to its end, in a database of its own."""

    def __init__(self, url: str, ledger: Path, **delayq: Any) -> None:
        self.proxy, self.ledger = Proxy(url), ledger
        self.delayq = {"REDIS": url, "LEASE": LEASE, "GRACE": 0.1, "CONCURRENCY": 2, **delayq}
        self.doors = Doors(
            url, clock=ServerClock(), **{name: self.delayq[name] for name in self.delayq.keys() - {"REDIS"}}
        )
        self.gate = Path(f"{ledger}.gate")
        self._processes: list[Any] = []

    def __enter__(self) -> Self:
        self.doors.client.flushdb()
        self.proxy.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            self.kill(process)
        self.proxy.__exit__()
        self.doors.client.flushdb()
        self.doors.close()

    def start(self, target: Callable[..., None], *arguments: Any, url: str = "") -> Any:
        """Fork a process."""
        delayq = {**self.delayq, "REDIS": url or self.delayq["REDIS"]}
        self._processes.append(FORKS.Process(target=target, args=(delayq, str(self.ledger), *arguments)))
        with FORKING:
            self._processes[-1].start()
        return self._processes[-1]

    def code(self, process: Any) -> int | None:
        """Return a process's exit code, None while it runs."""
        with FORKING:
            return process.exitcode

    def kill(self, process: Any) -> None:
        """End a process by SIGKILL."""
        with FORKING:
            process.kill()
        self.until(lambda: self.code(process) is not None, what="a killed process's end")

    def live(self, target: Callable[..., None], *arguments: Any, kill: tuple[int, bool], settled: Any = None) -> bool:
        """Let a process live until it is killed or has `settled` all and was told to end; tells whether it was killed.

        `kill`: at which request, and whether after it.
        """
        started, number = threading.Event(), 0

        def strike() -> None:
            assert started.wait(30)
            os.kill(number, signal.SIGKILL)

        self.proxy.kill_at(kill[0], strike, after=kill[1])
        process = self.start(target, *arguments, url=self.proxy.url)
        number = process.pid
        started.set()
        if settled is not None:
            self.until(lambda: self.proxy.killed.is_set() or settled(), what="the life to be settled")
            with FORKING:
                process.terminate()
        self.until(lambda: self.code(process) is not None and not self.proxy.connections, what="the process's end")
        killed = self.proxy.killed.is_set()
        assert self.code(process) == (-signal.SIGKILL if killed else 0), self.told()
        return killed

    def finish(self, *options: str, ended: Callable[[], Any] | None = None) -> "Picture":
        """Let others finish all jobs, or until `ended`; returns what is left."""
        process = self.start(finish, *options)
        self.until(ended or (lambda: not self.bodies()), what="all jobs to end")
        self.kill(process)
        return Picture(self.doors)

    def send(self, *handles: JobHandle) -> None:
        """Enqueue jobs without a process's help."""
        self.doors.enqueue(*(handle.draft for handle in handles if handle.draft))

    def runs(self, handle: JobHandle | None = None) -> list[dict[str, Any]]:
        """Return the ledger's runs, of one job where it is given."""
        lines = self.ledger.read_text().splitlines() if self.ledger.exists() else []
        runs = [event for event in map(json.loads, lines) if event["word"] == "run"]
        return [run for run in runs if handle is None or run["id"] == handle.id]

    def bodies(self) -> set[bytes]:
        """Return the ids of all jobs that have not ended and are not dead."""
        return set(self.doors.client.hkeys(self.doors.keys("bodies")))

    def until(self, look: Callable[[], Any], *, what: str) -> Any:
        """Wait for something to see."""
        return until(look, what=what, told=self.told)

    def told(self) -> str:
        """Return what the processes printed, for failures."""
        log = Path(f"{self.ledger}.log")
        ran = "\n".join(map(str, self.runs()[-20:]))
        return f"{self.ledger.name}: {self.proxy.commands}\n{ran}\n{log.read_text()[-3000:] if log.exists() else ''}"


class Picture:
    """A database, read while no process is at work and found sound."""

    def __init__(self, doors: Doors) -> None:
        # Every key is in the catalogue, has its type, and none has a TTL.
        self.values = {
            name.removeprefix(doors.keys("")): value for name, value in read(doors.client, doors.keys).items()
        }
        self.places: dict[bytes, list[str]] = defaultdict(list)
        for name, value in self.values.items():
            if name.split(":")[0] in ("schedule", "ready", "leases", "dead_letters"):
                for member in value:
                    self.places[member[:12]].append(name)
        assert [places for places in self.places.values() if len(places) > 1] == []
        dead = self.at("dead_letters")
        living = set(self.places) - dead
        assert self.ids("bodies") == living
        assert self.ids("dead_bodies") == dead
        assert self.ids("running") == self.at("leases")
        assert self.ids("attempts") <= living
        assert {member[:12] for member in self.values.get("holders", {}).values()} == self.ids("extras") <= living

    def at(self, *places: str) -> set[bytes]:
        """Return the ids in these places."""
        return {raw_id for raw_id, [place] in self.places.items() if place in places}

    def ids(self, noun: str) -> set[bytes]:
        """Return the ids that a hash knows."""
        return set(self.values.get(noun, {}))

    def lease_end(self, handle: JobHandle) -> float | None:
        """Return when the lease of a job ends, in seconds, where it is leased."""
        ends = [end for lease, end in self.values.get("leases", {}).items() if lease[:12] == raw(handle)]
        return ends[0] / 1_000_000 if ends else None

    def attempts(self, handle: JobHandle) -> Attempts:
        """Return the ended attempts of a job, alive or dead."""
        stored = self.values.get("dead_bodies", {}).get(raw(handle))
        if stored is not None:
            return Attempts.unpack(stored[22 : 22 + int.from_bytes(stored[:4])])
        return Attempts.unpack(self.values.get("attempts", {}).get(raw(handle)))


def raw(handle: JobHandle) -> bytes:
    """Return a job's id as Redis has it."""
    return bytes.fromhex(handle.id.split("-")[0])


@pytest.fixture
def walk(
    start_redis: Callable[..., PrivateRedis], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> Any:
    """Walk through the lives that `act` lives: `walk(act, least=20)` returns the scripts that were called."""
    server = start_redis()
    settings.DELAYQ = {"REDIS": server.url}
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.settings")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    FORKS.set_forkserver_preload([__name__, "django_delayq.management.commands.run_worker", "tests.app.tasks"])
    databases: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(1, 16):
        databases.put(number)

    def walked(act: Callable[[Life, tuple[int, bool]], bool], *, least: int, **delayq: Any) -> set[str]:
        over = threading.Event()
        steps, called = 0, set()

        def step(kill: tuple[int, bool]) -> int:
            if over.is_set():
                return 0
            database = databases.get()
            with Life(f"{server.url}?db={database}", tmp_path / f"step {kill[0]} {kill[1]}", **delayq) as life:
                killed = act(life, kill)
                called.update(SCRIPTS.get(command.removeprefix("EVALSHA "), command) for command in life.proxy.commands)
                # A blocking pop that is never answered is a step after which nobody can be killed.
                if not killed and life.proxy.requests < kill[0]:
                    over.set()
            databases.put(database)
            return kill[0] if killed else 0

        with ThreadPoolExecutor(WIDTH) as pool:
            steps = max(pool.map(step, [(k, after) for k in range(1, LONGEST) for after in (False, True)]))
        assert over.is_set(), f"the process made more than {LONGEST} requests"
        assert steps >= least, f"only {steps} steps were walked, with {called}"
        print(f"{steps} steps: {sorted(called)}")
        return called

    return walked


# Worker


def test_a_worker_killed_at_any_step_loses_nothing_and_counts_each_lease(walk: Any) -> None:
    called = walk(partial(live_as_worker, draw=one_of_each), least=25)
    assert {"exchange", "heartbeat", "promote", "BLPOP"} <= called


@pytest.mark.slow
@pytest.mark.parametrize("number", range(100))
def test_a_worker_killed_at_any_step_of_any_jobs_loses_nothing(walk: Any, number: int) -> None:
    print(f"DELAYQ_CHAOS_SEED={SEED}, of which this is number {number}")
    walk(partial(live_as_worker, draw=partial(some, SEED + number)), least=15)


def one_of_each() -> tuple[list[JobHandle], list[JobHandle]]:
    """Return one job of each kind, and those that will die."""
    doomed = tasks.fail.using(retry=TWICE).job()
    retried, delayed = tasks.fail.using(retry=PATIENT).job(1), tasks.record.after(0.3).job(2)
    # Longer than a heartbeat is away; what was claimed with it waits too long, and is released.
    long = tasks.nap.using(priority=-50).job(LEASE * 0.4)
    quick = [tasks.record.using(priority=priority).job(priority) for priority in (10, -70)]
    return [*quick, doomed, retried, delayed, long], [doomed]


def some(seed: int) -> tuple[list[JobHandle], list[JobHandle]]:
    """Return jobs that are the same for each life of a walk, and those that will die."""
    chance = random.Random(seed)
    jobs, dead = [], []
    for number in range(chance.randint(1, 12)):
        kind = chance.choice(("record", "record", "fail", "doomed", "nap"))
        options: dict[str, Any] = {"priority": chance.randint(-99, 100)}
        if chance.random() < 0.4:
            options["delay"] = chance.random()
        if chance.random() < 0.3:
            options["key"] = str(number)
        match kind:
            case "record":
                jobs.append(tasks.record.using(**options).job(number))
            case "fail":
                jobs.append(tasks.fail.using(retry=PATIENT, **options).job(chance.randint(1, 3)))
            case "doomed":
                jobs.append(tasks.fail.using(retry=TWICE, **options).job())
                dead.append(jobs[-1])
            case _:
                jobs.append(tasks.nap.using(**options).job(chance.random()))
    return jobs, dead


def live_as_worker(
    life: Life, kill: tuple[int, bool], *, draw: Callable[[], tuple[list[JobHandle], list[JobHandle]]]
) -> bool:
    """Let a worker run jobs without a dispatcher, stop it, and let others finish."""
    jobs, dead = draw()
    # Runs when the worker is told to end, and is given back.
    held = tasks.wait_for.using(priority=-100).job(str(life.gate))
    life.send(held, *jobs)
    killed = life.live(
        run_command, "run_worker", kill=kill, settled=lambda: life.bodies() == {raw(held)} and life.runs(held)
    )
    picture, before = Picture(life.doors), life.runs()
    life.gate.touch()
    judge_leases(life, picture, life.finish(), [held, *jobs], before, dead=dead)
    return killed


def judge_leases(
    life: Life,
    picture: Picture,
    final: Picture,
    jobs: Sequence[JobHandle],
    before: Sequence[dict[str, Any]],
    *,
    dead: Sequence[JobHandle] = (),
) -> None:
    """Find every job ended, none early, and its attempts those counted in `picture` and the runs since, one by one."""
    assert final.places.keys() == {raw(handle) for handle in dead}
    for handle in jobs:
        runs = life.runs(handle)
        early, late = [[run["attempt"] for run in runs if (run in before) is old] for old in (True, False)]
        assert all(run["at"] >= run["due"] for run in runs)
        if raw(handle) not in picture.places or raw(handle) in picture.at("dead_letters"):
            assert late == []
            assert early == list(range(1, len(early) + 1)) != []
        else:
            counted, lease_end = picture.attempts(handle).ended, picture.lease_end(handle)
            leases = counted if lease_end is None else counted + 1
            # A lease is counted whether or not its run had begun; all others had.
            assert len(early) in (counted, leases)
            assert early == list(range(1, len(early) + 1))
            assert late == list(range(leases + 1, leases + 1 + len(late)))
            if lease_end is not None and late:
                [first, *_] = [run for run in runs if run not in before]
                assert first["at"] >= lease_end
                assert first["recovered"]
        # The last attempt ended it, and all before were counted.
        assert handle not in dead or final.attempts(handle).ended == 2
        assert handle in dead or runs


# Dispatcher


def test_a_dispatcher_killed_at_any_step_moves_every_job_once(walk: Any) -> None:
    called = walk(live_as_dispatcher, least=12, DEAD_MAX_COUNT=2)
    assert {"promote", "reclaim", "SMEMBERS", "BLPOP"} <= called


def live_as_dispatcher(life: Life, kill: tuple[int, bool]) -> bool:
    """Let a dispatcher promote, reclaim and trim, stop it, and let others run what it moved."""
    letters = [life.doors.add_dead() for _ in range(3)]
    lapsed = tasks.record.using(retry=PATIENT, queue="lapsing").job("lapsed")
    doomed = tasks.record.using(retry=RetryPolicy(max_attempts=1), queue="lapsing").job("doomed")
    life.send(lapsed, doomed)
    leases = [claim.lease for claim in life.doors.worker().take(2, "lapsing").claims]
    assert len(leases) == 2
    life.doors.client.zadd(life.doors.keys("leases"), dict.fromkeys(leases, 1))
    due = [tasks.record.using(delay=delay, queue=f"queue {n}").job(n) for n, delay in enumerate((0.001, 0.002, 0.4))]
    life.send(*due)
    client, keys = life.doors.client, life.doors.keys
    queues = ["lapsing", *(f"queue {number}" for number in range(3))]

    def settled(waiting: Sequence[str]) -> bool:
        return client.zcard(keys("dead_letters")) == 2 and all(client.zcard(keys.ready(name)) for name in waiting)

    killed = life.live(run_command, "run_dispatcher", kill=kill, settled=lambda: settled(queues))
    picture = Picture(life.doors)
    assert not life.runs()
    assert picture.attempts(lapsed).ended == (0 if raw(lapsed) in picture.at("leases") else 1)
    # The lapsed one stays: a suspect's process is dear, and the worker's walk starts many.
    final = life.finish(
        "--queues", ",".join(queues[1:]), ended=lambda: settled(["lapsing"]) and life.bodies() == {raw(lapsed)}
    )
    # The newest two letters; each of the lapsed leases counted once.
    assert final.at("dead_letters") == {raw(doomed), letters[-1]}
    assert (final.attempts(doomed).ended, final.attempts(lapsed).ended) == (1, 1)
    assert final.places.keys() == {raw(doomed), letters[-1], raw(lapsed)}
    assert [run["attempt"] for handle in due for run in life.runs(handle)] == [1, 1, 1]
    assert all(run["at"] >= run["due"] for run in life.runs())
    return killed


# Producer


def test_a_producer_killed_at_any_step_sent_each_batch_whole_or_not_at_all(walk: Any) -> None:
    called = walk(live_as_producer, least=15)
    assert {"enqueue", "cancel", "reschedule", "move", "requeue", "discard"} <= called


def live_as_producer(life: Life, kill: tuple[int, bool]) -> bool:
    """Let a producer send jobs and change others, let another take the very same steps again, and run what there is."""
    revived, dropped = life.doors.add_dead(), life.doors.add_dead()
    died = {raw_id: life.doors.inspection.dead_letter(raw_id).died_us for raw_id in (revived, dropped)}
    cancelled, moved = tasks.record.job("cancelled"), tasks.record.job("moved")
    brought_forward = tasks.record.after(hours=1).job("brought forward")
    life.send(cancelled, moved, brought_forward)
    single, delayed = tasks.record.job("single"), tasks.record.after(0.2).job("delayed")
    keyed = tasks.record.using(key="only one", delay=0.1).job("keyed")
    # Six of 200 kB: more than one batch holds.
    many = [tasks.noop.job("x" * 200_000) for _ in range(6)]
    steps: list[tuple[str, Any, dict[str, Any]]] = [
        *(("enqueue", [handle], {}) for handle in (single, delayed, keyed)),
        ("enqueue", many, {}),
        ("cancel", raw(cancelled), {}),
        ("reschedule", raw(brought_forward), {"delay_us": 0}),
        ("move", raw(moved), {"queue": "other"}),
        ("requeue", revived, {"died_us": died[revived]}),
        ("discard", dropped, {"died_us": died[dropped]}),
    ]

    def done() -> list[bool]:
        picture = Picture(life.doors)
        batches = [{raw(handle) for handle in batch} for batch in ([single], [delayed], [keyed], many[:5], many[5:])]
        # Whole or not at all.
        assert all(batch <= picture.places.keys() or not batch & picture.places.keys() for batch in batches)
        return [
            *(batch <= picture.places.keys() for batch in batches),
            raw(cancelled) not in picture.places,
            raw(brought_forward) in picture.at("ready:default"),
            raw(moved) in picture.at("ready:other"),
            revived in picture.at("ready:default"),
            dropped not in picture.places,
        ]

    killed = life.live(produce, steps, kill=kill)
    steps_done = done()
    # In their order, and none after the one that was cut short.
    assert steps_done == sorted(steps_done, reverse=True)
    assert killed or all(steps_done)
    again = life.start(produce, steps)
    life.until(lambda: life.code(again) is not None, what="the second producer")
    assert life.code(again) == 0, life.told()
    assert all(done())
    assert life.finish().places == {}
    assert sorted(run["id"] for run in life.runs()) == sorted(
        handle.id for handle in (single, delayed, keyed, moved, brought_forward)
    )
    assert all(run["attempt"] == 1 and run["at"] >= run["due"] for run in life.runs())
    return killed
