"""Growing under load: while shards are added or dropped and processes are killed, no job is lost or runs twice."""

import random
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from django_delayq.store.slots import slot_of_shard
from django_delayq.store.store import Store, get_store
from tests.chaos.harness.repeated import Repeated
from tests.sample_app.growth_tasks import LIMITS, take
from tests.servers.local_cluster import LocalCluster
from tests.subprocesses import Command, Processes, until

VALUES = [f"value {number}" for number in range(10)]
NAMES = [f"schedule {number}" for number in range(6)]
#: An expired lease of a killed worker: its job runs a second time.
_EXPIRED = re.compile(r"Job (\S+?)(?: of .*: its lease expired|: worker \S+ did not confirm its claim)")


@pytest.fixture(autouse=True)
def _settings(processes: Processes) -> Iterator[None]:
    modules = ("tests.sample_app.growth_tasks",)
    processes.configure(SHARDS=2, LEASE=3, LIMITS=LIMITS, ON_COMMIT=False, TASK_MODULES=modules)
    yield
    get_store().disconnect_idle()


@pytest.fixture
def cluster(processes: Processes, server_program: Path) -> Iterator[LocalCluster]:
    """Three masters, with the shards of the test."""
    with LocalCluster(server=server_program) as started:
        processes.configure(REDIS=started.url)
        yield started


class Load(Repeated):
    """Enqueues jobs of all kinds."""

    def __init__(self, seed: int) -> None:
        super().__init__(every=0.01)
        self._chance = random.Random(seed)
        #: Handles of the jobs that were created: id -> kind and value.
        self.jobs: dict[str, tuple[str, str]] = {}
        self.errors: list[Exception] = []

    def until_more(self, count: int) -> None:
        """Wait until so many more jobs are created."""
        enough = len(self.jobs) + count
        until(lambda: len(self.jobs) >= enough or self.errors, what=f"{count} more jobs")

    def step(self) -> None:
        kind, value = self._chance.choice(["", "key", "tenant", "limit"]), self._chance.choice(VALUES)
        option: Any = ("account", value) if kind == "limit" else value
        options = {kind: option} if kind else {}
        try:
            handle = take.using(delay=self._chance.choice([None, 0.3]), **options).enqueue(value)
        except Exception as error:
            self.errors.append(error)
            return
        if handle.created:
            self.jobs[handle.id] = kind, value


class Watch(Repeated):
    """Looks whether a key is held in two shards."""

    def __init__(self) -> None:
        super().__init__(every=0.02)
        self._store = Store(get_store().config)
        self.split: list[Any] = []

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._store.disconnect_idle()

    def step(self) -> None:
        shards, found = [self._store.producer_shard(index) for index in range(5)], defaultdict(list)
        for index, shard in enumerate(shards):
            held = shard.execute("HGETALL", shard.keys("unique_keys"))
            for key, member in zip(held[::2], held[1::2], strict=True):
                found[key].append((index, member))
        for key, places in found.items():
            # The first may have ended before the second was stored.
            again = [shards[index].execute("HGET", shards[index].keys("unique_keys"), key) for index, _ in places]
            if len(places) > 1 and again == [member for _, member in places]:
                self.split.append(places)


def started(processes: Processes) -> list[Command]:
    """Start a dispatcher and two workers, and set schedules whose jobs they run each second."""
    get_store().check_shards()
    get_store().store_limits()
    running = [processes.dispatcher(), processes.worker(), processes.worker()]
    every = [{"name": name, "every": 1, "args": [name], "catch_up": "all", "overlap": "wait"} for name in NAMES]
    take.schedules.set_many(every)
    return running


def grown(processes: Processes, chance: random.Random) -> list[Command]:
    """Grow to 5 shards; the command is killed twice at some moment, and run again."""
    commands = []
    for patience in (chance.uniform(0.5, 16), chance.uniform(14, 17)):
        commands.append(processes.start("delayq_shards", "--grow", 5, "--yes"))
        with suppress(AssertionError):
            until(lambda: not commands[-1].running, what="the command", patience=patience)
        if commands[-1].running:
            commands[-1].kill()
    commands.append(processes.start("delayq_shards", "--grow", 5, "--yes"))
    assert commands[-1].wait() == 0, commands[-1].output
    return commands


@pytest.mark.slow
def test_on_a_cluster(cluster: LocalCluster, processes: Processes, seed: int) -> None:
    test_from_two_to_five_shards_under_load(processes, seed)
    owners = {cluster.master_of(slot_of_shard(shard)).address for shard in range(5)}
    assert len(owners) == 3


def test_from_two_to_five_shards_under_load(processes: Processes, seed: int) -> None:
    chance = random.Random(seed)
    running = started(processes)
    with Watch() as watch, Load(seed) as load:
        load.until_more(100)
        grown(processes, chance)
        victim = running.pop()
        victim.send_all(9)
        running.append(processes.worker())
        load.until_more(300)
    assert load.errors == [] and watch.split == []
    for name in NAMES:
        assert take.schedules.pause(name)
    processes.until_empty()
    finished = processes.start("delayq_shards", "--finish", "--yes")
    assert finished.wait() == 0, finished.output
    get_store().layouts.read()
    assert get_store().layout.is_finished and get_store().layout.shards == 5, finished.output
    assert [command.end() for command in running] == [0] * len(running)
    check(processes, load, [victim, *running], shards=5)


@pytest.mark.slow
def test_from_four_to_two_shards_under_load(processes: Processes, seed: int) -> None:
    processes.configure(SHARDS=4)
    running = started(processes)
    with Watch() as watch, Load(seed) as load:
        load.until_more(100)
        assert processes.start("delayq_shards", "--shrink", 2, "--yes", "--wait", 5).wait() == 1
        load.until_more(300)
    assert load.errors == [] and watch.split == []
    for name in NAMES:
        assert take.schedules.pause(name)
    processes.until_empty()
    dropped = processes.start("delayq_shards", "--shrink", 2, "--yes")
    assert dropped.wait() == 0, dropped.output
    get_store().layouts.read()
    assert get_store().layout.is_finished and get_store().shard_count == 2, dropped.output
    later = take.using(delay=0.1).enqueue("later")
    load.jobs[later.id] = "", "later"
    processes.until_empty()
    assert [command.end() for command in running] == [0] * len(running)
    check(processes, load, running, shards=4)


def check(processes: Processes, load: Load, commands: list[Command], *, shards: int) -> None:
    """Compare the runs with the jobs, the occurrences and the limits."""
    runs, again = defaultdict(list), set[str]()
    for command in commands:
        assert not command.failures
        again |= set(_EXPIRED.findall(command.output))
    for event in processes.runs():
        runs[event["id"]].append(event)
    assert set(load.jobs) <= set(runs), "a job is lost"
    twice = {id for id, found in runs.items() if len(found) > 1}
    assert twice <= again, "a job has run twice"
    assert {id.split("-")[1] for id in runs} == {str(shard) for shard in range(shards)}
    for name in NAMES:
        moments = [found[0]["occurrence"] for found in runs.values() if found[0]["value"] == name]
        assert len(moments) == len(set(moments)), f"an occurrence of {name} has two jobs"
        first, last = int(min(moments)), int(max(moments))
        assert sorted(map(int, moments)) == list(range(first, last + 1)), f"an occurrence of {name} is lost"
    ends = {event["id"]: event["at"] for event in processes.events("end")}
    for kind in ("limit", "key"):
        for value in VALUES:
            found = [
                (runs[id][-1]["at"], ends[id])
                for id, of in load.jobs.items()
                if of == (kind, value) and id not in again
            ]
            spans = sorted(found)
            for (_, end), (begin, _) in zip(spans, spans[1:], strict=False):
                assert end <= begin + 0.001, f"two jobs of the {kind} {value} at once"
