"""Every step: a process is killed at its k-th request, before and after Redis ran it, for every k of its life.

Another process, which no proxy cuts, finishes its work.
"""

import queue
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from django_delayq import RetryPolicy
from django_delayq.store.client.script import Script
from django_delayq.task.handle import JobHandle
from django_delayq.testing.local_redis import LocalRedisServer
from tests.chaos.options import drawn_seed
from tests.chaos.process_run import FORKS, LEASE, ProcessRun, RedisState, produce, raw, run_command
from tests.sample_app import tasks
from tests.subprocesses import python_path

#: Lives at once, each in one of the server's 16 databases.
WIDTH = 10
#: Requests in a life, at most: a walk beyond would never end.
LONGEST = 250
#: SHA -> name of each script.
SCRIPTS = {
    Script(name).sha: name
    for name in (
        *("enqueue", "promote", "settle_and_claim", "reclaim", "heartbeat", "report"),
        *("cancel", "reschedule", "move", "requeue", "discard"),
    )
}
TWICE = RetryPolicy(max_attempts=2, base=0.01, cap=0.02)
PATIENT = RetryPolicy(max_attempts=6, base=0.01, cap=0.02)
SEED = drawn_seed()


@pytest.fixture
def walk(
    start_redis: Callable[..., LocalRedisServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> Any:
    """Walk through the lives that `act` lives: `walk(act, least=20)` returns the scripts that were called."""
    server = start_redis()
    settings.DELAYQ = {"REDIS": server.url}
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.settings")
    monkeypatch.setenv("PYTHONPATH", python_path())
    FORKS.set_forkserver_preload(
        [ProcessRun.__module__, "django_delayq.management.commands.run_worker", "tests.sample_app.tasks"]
    )
    databases: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(1, 16):
        databases.put(number)

    def walked(act: Callable[[ProcessRun, tuple[int, bool]], bool], *, least: int, **delayq: Any) -> set[str]:
        over = threading.Event()
        steps, called = 0, set()

        def step(kill: tuple[int, bool]) -> int:
            if over.is_set():
                return 0
            database = databases.get()
            try:
                with ProcessRun(
                    f"{server.url}?db={database}", tmp_path / f"step {kill[0]} {kill[1]}", **delayq
                ) as life:
                    killed = act(life, kill)
                    commands = (command.removeprefix("EVALSHA ") for command in life.proxy.commands)
                    called.update(SCRIPTS.get(command, command) for command in commands)
                    # A blocking pop that is never answered is a step after which nobody can be killed.
                    if not killed and life.proxy.requests < kill[0]:
                        over.set()
            except BaseException:
                over.set()
                raise
            finally:
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


def test_worker_killed_at_any_request_loses_no_job_and_counts_each_lease(walk: Any) -> None:
    called = walk(partial(live_as_worker, draw=one_of_each), least=25)
    assert {"settle_and_claim", "heartbeat", "promote", "report", "BLPOP"} <= called


@pytest.mark.slow
@pytest.mark.parametrize("number", range(100))
def test_worker_killed_at_any_request_of_random_jobs_loses_no_job(walk: Any, number: int) -> None:
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
    life: ProcessRun, kill: tuple[int, bool], *, draw: Callable[[], tuple[list[JobHandle], list[JobHandle]]]
) -> bool:
    """Let a worker run jobs without a dispatcher, stop it, and let others finish."""
    jobs, dead = draw()
    # Runs when the worker is told to end, and is given back.
    held = tasks.wait_for.using(priority=-100).job(str(life.gate))
    life.send(held, *jobs)
    killed = life.live(
        run_command, "run_worker", kill=kill, settled=lambda: life.bodies() == {raw(held)} and life.runs(held)
    )
    picture, before = RedisState(life.apis), life.runs()
    life.gate.touch()
    judge_leases(life, picture, life.finish(), [held, *jobs], before, dead=dead)
    return killed


def judge_leases(
    life: ProcessRun,
    picture: RedisState,
    final: RedisState,
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


def test_dispatcher_killed_at_any_request_moves_every_job_once(walk: Any) -> None:
    called = walk(live_as_dispatcher, least=12, DEAD_MAX_COUNT=2)
    assert {"promote", "reclaim", "BLPOP"} <= called


def live_as_dispatcher(life: ProcessRun, kill: tuple[int, bool]) -> bool:
    """Let a dispatcher promote, reclaim and trim, stop it, and let others run what it moved."""
    letters = [life.apis.add_dead() for _ in range(3)]
    lapsed = tasks.record.using(retry=PATIENT, queue="lapsing").job("lapsed")
    doomed = tasks.record.using(retry=RetryPolicy(max_attempts=1), queue="lapsing").job("doomed")
    life.send(lapsed, doomed)
    leases = [claim.lease for claim in life.apis.worker().take(2, "lapsing").claims]
    assert len(leases) == 2
    life.apis.client.zadd(life.apis.keys("leases"), dict.fromkeys(leases, 1))
    due = [tasks.record.using(delay=delay, queue=f"queue {n}").job(n) for n, delay in enumerate((0.001, 0.002, 0.4))]
    life.send(*due)
    client, keys = life.apis.client, life.apis.keys
    queues = ["lapsing", *(f"queue {number}" for number in range(3))]
    places = {name: keys.recovered(name) if name == "lapsing" else keys.ready(name) for name in queues}

    def settled(waiting: Sequence[str]) -> bool:
        # In this order: the letters are also two between a trim and the reclaim that adds the third.
        return all(client.zcard(places[name]) for name in waiting) and client.zcard(keys("dead_letters")) == 2

    killed = life.live(run_command, "run_dispatcher", kill=kill, settled=lambda: settled(queues))
    picture = RedisState(life.apis)
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


def test_producer_killed_at_any_request_sends_each_batch_whole_or_not_at_all(walk: Any) -> None:
    called = walk(live_as_producer, least=15)
    assert {"enqueue", "cancel", "reschedule", "move", "requeue", "discard"} <= called


def live_as_producer(life: ProcessRun, kill: tuple[int, bool]) -> bool:
    """Let a producer send jobs and change others, let another take the very same steps again, and run what there is."""
    revived, dropped = life.apis.add_dead(), life.apis.add_dead()
    died = {raw_id: life.apis.inspection.dead_letter(raw_id).died_us for raw_id in (revived, dropped)}
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
        picture = RedisState(life.apis)
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
