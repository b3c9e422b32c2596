"""Clocks: host clocks decide nothing. Redis's clock may jump, and no job is lost, repeated or early for that."""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from typing import Any

import pytest

from django_delayq.dispatcher.dispatcher import Dispatcher
from django_delayq.job.outcome import Action
from tests.shard_apis import HOUR, SECOND, ShardApis, settlement
from tests.stateful import invariants, redis_state
from tests.subprocesses import Processes, python_path

# Python runs this first in a process, so no code reads the correct clock before. Monotonic time is unchanged.
SHIFTED = """
import datetime, itertools, os, time
time.unshifted, unshifted_ns = time.time, time.time_ns
how = os.environ.get("DELAYQ_TEST_CLOCK", "0")
shifts = itertools.cycle([3600, 0, -3600] if how == "jumping" else [int(how)])
time.time = lambda: time.unshifted() + next(shifts)
time.time_ns = lambda: unshifted_ns() + next(shifts) * 10**9
real = datetime.datetime

class Kind(type):
    def __instancecheck__(cls, value):
        return isinstance(value, real)

class Shifted(real, metaclass=Kind):
    @classmethod
    def now(cls, tz=None):
        return real.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls):
        return real.fromtimestamp(time.time(), datetime.timezone.utc).replace(tzinfo=None)

datetime.datetime = Shifted
"""
PRODUCER = """
import datetime, sys, time, django
django.setup()
from tests.sample_app.task_modules.clock_tasks import report_clock
before = time.unshifted()
delayed = report_clock.after(1).enqueue()
after = time.unshifted()
at = report_clock.at(datetime.datetime.fromtimestamp(float(sys.argv[1]), datetime.timezone.utc)).enqueue()
past = report_clock.at(datetime.datetime.fromtimestamp(float(sys.argv[1]) - 600, datetime.timezone.utc)).enqueue()
long = report_clock.enqueue(4.8)
print(before, after, time.unshifted(), delayed.id, at.id, past.id, long.id)
"""
CLOCKS = ["3600", "-3600", "jumping"]


# Only a new interpreter runs sitecustomize.py before all other code.
@pytest.mark.usefixtures("new_interpreters")
def test_wrong_host_clocks_change_neither_due_times_nor_leases(processes: Processes) -> None:
    (processes.folder / "sitecustomize.py").write_text(SHIFTED)
    processes.configure(TASK_MODULES=("tests.sample_app.task_modules.clock_tasks",), LEASE=3)
    commands = [processes.start("run_dispatcher", DELAYQ_TEST_CLOCK=clock) for clock in CLOCKS]
    commands += [processes.worker("--concurrency", 2, DELAYQ_TEST_CLOCK=clock) for clock in CLOCKS]
    moment = time.time() + 4
    due: dict[str, tuple[float, float]] = {}
    for clock in CLOCKS:
        before, after, last, delayed, at, past, long = enqueue(processes, clock, moment)
        # A delay counts from the call, by the correct time. A fixed time is kept, and a past time means now.
        due[delayed] = (float(before) + 1, float(after) + 1)
        due[at] = (moment, max(moment, float(last)))
        due[past] = due[long] = (float(before), float(after) + 60)
    processes.until_runs(len(due))
    processes.until_empty()
    runs = processes.runs()
    assert Counter(run["id"] for run in runs) == dict.fromkeys(due, 1)
    for run in runs:
        earliest, latest = due[run["id"]]
        assert earliest <= run["truly"]
        # A rank has the due time to the millisecond.
        assert earliest - 0.001 <= run["due"] <= latest
        assert abs(run["believed"] - run["truly"]) > 3_000 or run["pid"] == commands[-1].pid
    output = "".join(command.output for command in commands)
    assert "lease" not in output
    assert "Traceback" not in output
    assert [command.end() for command in commands] == [0] * 6


def enqueue(processes: Processes, clock: str, moment: float) -> list[str]:
    """Enqueue in a process with that clock; return the words that it printed."""
    path = python_path(processes.folder)
    environ = {**os.environ, "DJANGO_SETTINGS_MODULE": "process_settings", "PYTHONPATH": path}
    ended = subprocess.run(
        [sys.executable, "-c", PRODUCER, str(moment)],
        env={**environ, "DELAYQ_TEST_CLOCK": clock},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


# The clock of Redis


@pytest.mark.parametrize("round_number", range(3))
def test_jumps_of_redis_clock_lose_no_job_and_start_none_twice_or_early(
    round_number: int, redis_url: str, client: Any, seed: int
) -> None:
    rng, apis = random.Random(f"{seed} {round_number}"), ShardApis(redis_url)
    due = {}

    def add() -> None:
        delay = rng.choice([0, SECOND, 40 * SECOND, HOUR])
        due[apis.add(delay=delay)] = apis.clock.now_us + delay

    for _ in range(60):
        add()
    dispatcher, workers = Dispatcher(apis.shard, apis.promotion), [apis.worker() for _ in range(3)]
    held: list[list[Any]] = [[], [], []]
    acknowledged: Counter[bytes] = Counter()
    refused = back = 0

    def step(number: int) -> None:
        nonlocal refused
        before = apis.ready()
        waiting = apis.scheduled()
        dispatcher.step()
        for raw_id in apis.ready().keys() - before.keys():
            assert waiting[raw_id] <= apis.clock.now_us, "early"
        settled = [settlement(claim, Action.ACKNOWLEDGE) for claim in held[number]]
        answer = workers[number].take(rng.randint(1, 5), settle=settled)
        for item in settled:
            refused += item.claim.lease in answer.lost
            acknowledged[item.claim.raw_id] += item.claim.lease not in answer.lost
        held[number] = list(answer.claims)
        invariants.check_each_job_is_in_one_place(redis_state.read(client, apis.keys), apis.keys)

    for _ in range(150):
        jump = rng.choice([0, 1_000, SECOND, 31 * SECOND, HOUR, -SECOND, -31 * SECOND, -HOUR])
        back += jump < 0
        apis.clock.advance(jump)
        # Without new jobs, all might be done before a lease expires.
        if client.hlen(apis.keys("jobs")) < 20:
            add()
        step(rng.randrange(3))
    # The clock is correct again, later than it has ever been.
    apis.clock.now_us = max(due.values()) + 400 * HOUR
    for number in range(400):
        if not client.hlen(apis.keys("jobs")):
            break
        apis.clock.advance(HOUR)
        step(number % 3)
    dead = set(apis.scores(apis.keys("dead_letters")))
    apis.close()
    assert back and refused, "nothing happened in this round"
    assert max(acknowledged.values()) == 1
    assert {job for job, count in acknowledged.items() if count} | dead == due.keys()
    assert not dead & {job for job, count in acknowledged.items() if count}
