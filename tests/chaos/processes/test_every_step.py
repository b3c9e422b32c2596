"""Every request: a process is killed at its k-th request, before or after Redis runs it, for every k until its end.

The slow form kills it before and after. Another process, which no proxy disturbs, finishes its work.
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
from tests.chaos.harness.options import drawn_seed
from tests.chaos.processes.process_run import FORKS, LEASE, ProcessRun, RedisState, produce, raw, run_command
from tests.sample_app import tasks
from tests.subprocesses import python_path

#: Parallel process runs. Each uses one of the server's 16 databases.
WIDTH = 10
#: The most requests of a process run, so that a run without end fails.
LONGEST = 250
#: SHA -> name of each script.
SCRIPTS = {
    Script(name).sha: name
    for name in (
        *("enqueue", "enqueue_one", "promote", "settle_and_claim", "reclaim", "heartbeat", "report"),
        *("cancel", "reschedule", "move", "requeue", "discard"),
    )
}
TWICE = RetryPolicy(max_attempts=2, base=0.01, cap=0.02)
PATIENT = RetryPolicy(max_attempts=6, base=0.01, cap=0.02)
SEED = drawn_seed()
BOTH = pytest.mark.parametrize("both", [False, pytest.param(True, marks=pytest.mark.slow)])


@pytest.fixture
def kill_at_each_request(
    start_redis: Callable[..., LocalRedisServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> Any:
    """Repeat `act` with a kill at each request: `kill_at_each_request(act, least=20, both=True)`.

    With `both`, there is a kill before and after Redis runs it; otherwise the seed decides on which side. Returns the
    names of the scripts and commands that the process called.
    """
    server = start_redis()
    settings.DELAYQ = {"REDIS": server.url}
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.settings")
    monkeypatch.setenv("PYTHONPATH", python_path())
    commands = [f"django_delayq.management.commands.{name}" for name in ("run_worker", "run_dispatcher")]
    FORKS.set_forkserver_preload(
        [ProcessRun.__module__, *commands, "tests.sample_app.tasks", "tests.chaos.processes.prepared_forks"]
    )
    databases: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(1, 16):
        databases.put(number)

    def run_all(
        act: Callable[[ProcessRun, tuple[int, bool]], bool], *, least: int, both: bool, **delayq: Any
    ) -> set[str]:
        over = threading.Event()
        steps, called = 0, set()

        def step(kill: tuple[int, bool]) -> int:
            if over.is_set():
                return 0
            database = databases.get()
            try:
                with ProcessRun(
                    f"{server.url}?db={database}", tmp_path / f"step {kill[0]} {kill[1]}", **delayq
                ) as process_run:
                    killed = act(process_run, kill)
                    commands = (command.removeprefix("EVALSHA ") for command in process_run.proxy.commands)
                    called.update(SCRIPTS.get(command, command) for command in commands)
                    # The reply to a blocking pop may never come. Then a kill after that request does not happen.
                    if not killed and process_run.proxy.requests < kill[0]:
                        over.set()
            except BaseException:
                over.set()
                raise
            finally:
                databases.put(database)
            return kill[0] if killed else 0

        with ThreadPoolExecutor(WIDTH) as pool:
            sides = [
                (k, after) for k in range(1, LONGEST) for after in (False, True) if both or (k + SEED) % 2 == after
            ]
            steps = max(pool.map(step, sides))
        assert over.is_set(), f"the process made more than {LONGEST} requests"
        assert steps >= least, f"only {steps} requests were reached, with {called}"
        print(f"{steps} steps: {sorted(called)}")
        return called

    return run_all


# Worker


@BOTH
def test_worker_killed_at_any_request_loses_no_job_and_counts_each_lease(kill_at_each_request: Any, both: bool) -> None:
    called = kill_at_each_request(partial(act_as_worker, draw=one_of_each), least=25, both=both)
    assert {"settle_and_claim", "heartbeat", "promote", "report", "BLPOP"} <= called


@pytest.mark.slow
@pytest.mark.parametrize("number", range(100))
def test_worker_killed_at_any_request_of_random_jobs_loses_no_job(kill_at_each_request: Any, number: int) -> None:
    print(f"DELAYQ_CHAOS_SEED={SEED}, of which this is number {number}")
    kill_at_each_request(partial(act_as_worker, draw=partial(random_jobs, SEED + number)), least=15, both=True)


def one_of_each() -> tuple[list[JobHandle], list[JobHandle]]:
    """Return one job of each kind, and those that will become dead letters."""
    will_die = tasks.fail.using(retry=TWICE).job()
    retried, delayed = tasks.fail.using(retry=PATIENT).job(1), tasks.record.after(0.3).job(2)
    # It runs longer than the interval of heartbeats. Jobs claimed with it wait too long and are released.
    long = tasks.nap.using(priority=-50).job(LEASE * 0.4)
    quick = [tasks.record.using(priority=priority).job(priority) for priority in (10, -70)]
    return [*quick, will_die, retried, delayed, long], [will_die]


def random_jobs(seed: int) -> tuple[list[JobHandle], list[JobHandle]]:
    """Return random jobs, the same for each run with this seed, and those that will become dead letters."""
    rng = random.Random(seed)
    jobs, dead = [], []
    for number in range(rng.randint(1, 12)):
        kind = rng.choice(("record", "record", "fail", "will_die", "nap"))
        options: dict[str, Any] = {"priority": rng.randint(-99, 100)}
        if rng.random() < 0.4:
            options["delay"] = rng.random()
        if rng.random() < 0.3:
            options["key"] = str(number)
        match kind:
            case "record":
                jobs.append(tasks.record.using(**options).job(number))
            case "fail":
                jobs.append(tasks.fail.using(retry=PATIENT, **options).job(rng.randint(1, 3)))
            case "will_die":
                jobs.append(tasks.fail.using(retry=TWICE, **options).job())
                dead.append(jobs[-1])
            case _:
                jobs.append(tasks.nap.using(**options).job(rng.random()))
    return jobs, dead


def act_as_worker(
    process_run: ProcessRun, kill: tuple[int, bool], *, draw: Callable[[], tuple[list[JobHandle], list[JobHandle]]]
) -> bool:
    """Let a worker run jobs without a dispatcher, stop it, and finish the jobs with another process."""
    jobs, dead = draw()
    # This job still runs when the worker stops, so it is given back, uncounted.
    held = tasks.wait_for.using(priority=-100).job(str(process_run.gate))
    process_run.send(held, *jobs)
    killed = process_run.run_process(
        run_command,
        "run_worker",
        kill=kill,
        settled=lambda: process_run.bodies() == {raw(held)} and process_run.runs(held),
    )
    state, before = RedisState(process_run.apis), process_run.runs()
    process_run.gate.touch()
    check_leases(process_run, state, process_run.finish(), [held, *jobs], before, dead=dead)
    return killed


def check_leases(
    process_run: ProcessRun,
    state: RedisState,
    final: RedisState,
    jobs: Sequence[JobHandle],
    before: Sequence[dict[str, Any]],
    *,
    dead: Sequence[JobHandle] = (),
) -> None:
    """Check that every job ended, that none was early, and that `state` and later runs number its attempts in order."""
    assert final.places.keys() == {raw(handle) for handle in dead}
    for handle in jobs:
        runs = process_run.runs(handle)
        early, late = [[run["attempt"] for run in runs if (run in before) is old] for old in (True, False)]
        assert all(run["at"] >= run["due"] for run in runs)
        if raw(handle) not in state.places or raw(handle) in state.at("dead_letters"):
            assert late == []
            assert early == list(range(1, len(early) + 1)) != []
        else:
            found, lease_end = state.attempts(handle), state.lease_end(handle)
            counted = found.ended
            leases = counted if lease_end is None else counted + 1
            # A lease counts even if its run had not started. All other attempts had a run. The stop counted none.
            assert len(early) - found.interruptions in (counted, leases)
            assert early == list(range(1, len(early) + 1))
            assert late == list(range(leases + 1, leases + 1 + len(late)))
            if lease_end is not None and late:
                [first, *_] = [run for run in runs if run not in before]
                assert first["at"] >= lease_end
                assert first["recovered"]
        # The last attempt ended the job, and all earlier ones were counted.
        assert handle not in dead or final.attempts(handle).ended == 2
        assert handle in dead or runs


# Dispatcher


@BOTH
def test_dispatcher_killed_at_any_request_moves_every_job_once(kill_at_each_request: Any, both: bool) -> None:
    called = kill_at_each_request(act_as_dispatcher, least=12, both=both, DEAD_MAX_COUNT=2)
    assert {"promote", "reclaim", "BLPOP"} <= called


def act_as_dispatcher(process_run: ProcessRun, kill: tuple[int, bool]) -> bool:
    """Let a dispatcher promote, reclaim and trim, stop it, and run the jobs with another process."""
    letters = [process_run.apis.add_dead() for _ in range(3)]
    expired = tasks.record.using(retry=PATIENT, queue="expiring").job("expired")
    will_die = tasks.record.using(retry=RetryPolicy(max_attempts=1), queue="expiring").job("will_die")
    process_run.send(expired, will_die)
    leases = [claim.lease for claim in process_run.apis.worker().take(2, "expiring").claims]
    assert len(leases) == 2
    process_run.apis.client.zadd(process_run.apis.keys("leases"), dict.fromkeys(leases, 1))
    due = [tasks.record.using(delay=delay, queue=f"queue {n}").job(n) for n, delay in enumerate((0.001, 0.002, 0.4))]
    process_run.send(*due)
    client, keys = process_run.apis.client, process_run.apis.keys
    queues = ["expiring", *(f"queue {number}" for number in range(3))]
    places = {name: keys.recovered(name) if name == "expiring" else keys.ready(name) for name in queues}

    def settled(waiting: Sequence[str]) -> bool:
        # The order matters: there are also two dead letters between a trim and the reclaim that adds the third.
        return all(client.zcard(places[name]) for name in waiting) and client.zcard(keys("dead_letters")) == 2

    killed = process_run.run_process(run_command, "run_dispatcher", kill=kill, settled=lambda: settled(queues))
    state = RedisState(process_run.apis)
    assert not process_run.runs()
    assert state.attempts(expired).ended == (0 if raw(expired) in state.at("leases") else 1)
    # The expired job stays: a recovery process starts slowly, and the test of workers starts many of them.
    final = process_run.finish(
        "--queues", ",".join(queues[1:]), ended=lambda: settled(["expiring"]) and process_run.bodies() == {raw(expired)}
    )
    # The two newest dead letters remain. Each expired lease counts once.
    assert final.at("dead_letters") == {raw(will_die), letters[-1]}
    assert (final.attempts(will_die).ended, final.attempts(expired).ended) == (1, 1)
    assert final.places.keys() == {raw(will_die), letters[-1], raw(expired)}
    assert [run["attempt"] for handle in due for run in process_run.runs(handle)] == [1, 1, 1]
    assert all(run["at"] >= run["due"] for run in process_run.runs())
    return killed


# Producer


@BOTH
def test_producer_killed_at_any_request_sends_each_batch_whole_or_not_at_all(
    kill_at_each_request: Any, both: bool
) -> None:
    called = kill_at_each_request(act_as_producer, least=15, both=both)
    assert {"enqueue", "enqueue_one", "cancel", "reschedule", "move", "requeue", "discard"} <= called


def act_as_producer(process_run: ProcessRun, kill: tuple[int, bool]) -> bool:
    """Let a producer enqueue and change jobs, repeat the same steps with another producer, and run the jobs."""
    revived, dropped = process_run.apis.add_dead(), process_run.apis.add_dead()
    died = {raw_id: process_run.apis.inspection.dead_letter(raw_id).moment_us for raw_id in (revived, dropped)}
    cancelled, moved = tasks.record.job("cancelled"), tasks.record.job("moved")
    brought_forward = tasks.record.after(hours=1).job("brought forward")
    process_run.send(cancelled, moved, brought_forward)
    single, delayed = tasks.record.job("single"), tasks.record.after(0.2).job("delayed")
    keyed = tasks.record.using(key="only one", delay=0.1).job("keyed")
    # Six jobs of 200 kB do not fit into one batch.
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
        state = RedisState(process_run.apis)
        batches = [{raw(handle) for handle in batch} for batch in ([single], [delayed], [keyed], many[:5], many[5:])]
        # Each batch is stored whole or not at all.
        assert all(batch <= state.places.keys() or not batch & state.places.keys() for batch in batches)
        return [
            *(batch <= state.places.keys() for batch in batches),
            raw(cancelled) not in state.places,
            raw(brought_forward) in state.at("ready:default"),
            raw(moved) in state.at("ready:other"),
            revived in state.at("ready:default"),
            dropped not in state.places,
        ]

    killed = process_run.run_process(produce, steps, kill=kill)
    steps_done = done()
    # The steps are done in their order, and none after the interrupted one.
    assert steps_done == sorted(steps_done, reverse=True)
    assert killed or all(steps_done)
    again = process_run.start(produce, steps)
    process_run.until(lambda: process_run.code(again) is not None, what="the second producer")
    assert process_run.code(again) == 0, process_run.details()
    assert all(done())
    assert process_run.finish().places == {}
    assert sorted(run["id"] for run in process_run.runs()) == sorted(
        handle.id for handle in (single, delayed, keyed, moved, brought_forward)
    )
    assert all(run["attempt"] == 1 and run["at"] >= run["due"] for run in process_run.runs())
    return killed
