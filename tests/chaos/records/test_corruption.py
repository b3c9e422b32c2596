"""Corruption: records are deleted, overwritten and invented while processes run. It affects only jobs with bad records.

A key of the wrong type refuses the transitions that need it before they change anything. Processes wait, and continue
where they stopped once the key is repaired.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from django_delayq import get_store
from django_delayq.exceptions import ScriptFault
from django_delayq.job.outcome import Action
from django_delayq.store.keys import CATALOGUE, Keys
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck, Inconsistency
from django_delayq.store.promotion import Reclaim
from tests.chaos.harness.steady_load import SteadyLoad
from tests.sample_app import tasks
from tests.shard_apis import SECOND, ShardApis, one_more, settlement
from tests.subprocesses import Processes

#: Keys that a transition needs and that do not belong to one queue.
FIXED = sorted(set(CATALOGUE) - {"scheduled", "ready", "notify", "notify_sent_on", "notify_dispatcher", "shards"})
Step = Callable[[ShardApis, Any, list[Any]], Any]


def set_wrong_type(client: Redis, key: str) -> None:
    client.delete(key)
    noun = key.split("}:")[1].partition(":")[0]
    client.rpush(key, "x") if CATALOGUE[noun][0] == "string" else client.set(key, "x")


def contents(client: Redis) -> dict[bytes, Any]:
    return {key: client.dump(key) for key in client.keys("*")}


@pytest.fixture
def apis(redis_url: str, client: Redis) -> Iterator[ShardApis]:
    opened = ShardApis(redis_url)
    yield opened
    opened.close()


def reclaim(apis: ShardApis, _: Any, claims: list[Any]) -> None:
    apis.clock.advance(apis.config.worker.lease_us)
    queues = ["default", None]
    decided = [Reclaim(lease=c.lease, attempts=one_more(c.attempts), queue=queues.pop()) for c in claims]
    assert apis.promotion.reclaim(decided) == [True, True]


STEPS: dict[str, Step] = {
    "enqueue": lambda apis, worker, claims: apis.add(key="new"),
    "enqueue one": lambda apis, worker, claims: apis.add(),
    "enqueue later": lambda apis, worker, claims: apis.add(delay=SECOND),
    "promote": lambda apis, worker, claims: (apis.clock.advance(SECOND), apis.promotion.promote(["default"])),
    "claim": lambda apis, worker, claims: worker.take(5),
    "first claim": lambda apis, worker, claims: apis.worker().take(5, description="new"),
    "heartbeat": lambda apis, worker, claims: worker.api.heartbeat([claim.lease for claim in claims]),
    "reclaim": reclaim,
    **{
        str(how): lambda apis, worker, claims, how=how: worker.take(2, settle=[settlement(c, how) for c in claims])
        for how in Action
    },
    "cancel": lambda apis, worker, claims: apis.operations.cancel(next(iter(apis.scheduled()))),
    "reschedule": lambda apis, worker, claims: apis.operations.reschedule(next(iter(apis.scheduled())), delay_us=5),
    "move": lambda apis, worker, claims: apis.operations.move(next(iter(apis.scheduled())), "another"),
    "requeue": lambda apis, worker, claims: requeue(apis),
    "discard": lambda apis, worker, claims: discard(apis),
}


def requeue(apis: ShardApis) -> None:
    [(raw_id, died_us)] = apis.scores(apis.keys("dead_letters")).items()
    assert apis.operations.requeue(raw_id, died_us=died_us)


def discard(apis: ShardApis) -> None:
    [(raw_id, died_us)] = apis.scores(apis.keys("dead_letters")).items()
    assert apis.operations.discard(raw_id, died_us=died_us)


def test_transition_refused_by_key_of_wrong_type_changes_nothing(apis: ShardApis, client: Redis) -> None:
    refused = set()
    places = [apis.keys(noun) for noun in FIXED]
    places += [apis.keys.scheduled("default"), apis.keys.ready("default"), apis.keys.ready("another")]
    places.append(apis.keys.recovered("default"))
    for key in places:
        for name, step in STEPS.items():
            client.flushall()
            worker = apis.worker()
            apis.add_dead(key="dead")
            apis.add(key="claimed")
            apis.add()
            claims = worker.take(5, description="old").claims
            apis.add()
            apis.add(delay=SECOND, key="scheduled")
            apis.promote()
            set_wrong_type(client, key)
            before = contents(client)
            try:
                step(apis, worker, claims)
            except (ScriptFault, StopIteration, ValueError) as fault:
                # The record to change was not found, or the transition was refused.
                assert contents(client) == before, f"{name} with {key} of wrong type: partial change, then {fault}"
                refused.add(name)
            except Exception as error:
                assert "WRONGTYPE" in str(error), f"{name} with {key} of wrong type"
    # Each transition must have been refused at least once, or the test proves nothing.
    assert refused == set(STEPS)


def test_processes_wait_while_keys_have_wrong_type_and_lose_nothing(processes: Processes, client: Redis) -> None:
    processes.configure(LEASE=2)
    commands = [processes.dispatcher(), processes.worker()]
    with SteadyLoad() as load:
        load.until_accepted(60)
    # The next promotion overwrites next_promotion, and wrong values of no_reclaim_before are ignored.
    nouns = [
        noun
        for noun in FIXED
        if noun not in ("next_promotion", "no_reclaim_before") and client.exists(processes.keys(noun))
    ]
    aside = {processes.keys(noun): f"aside:{noun}" for noun in nouns}
    # One transaction: between two of these commands, a transition would find missing keys and run without them.
    with client.pipeline() as pipeline:
        for key, kept in aside.items():
            pipeline.copy(key, kept)
            set_wrong_type(pipeline, key)
        pipeline.execute()
    assert len(aside) >= 5
    for command in commands:
        processes.until(lambda command=command: "waits for Redis" in command.output, what="processes to wait")
    with client.pipeline() as pipeline:
        for key, kept in aside.items():
            pipeline.delete(key)
            pipeline.copy(kept, key)
            pipeline.delete(kept)
        pipeline.execute()
    last = tasks.record.after(0.1).enqueue("last")
    processes.until_gone([last])
    processes.until_empty()
    load.accepted[last.id] = 0
    load.check(processes, commands)
    for command in commands:
        processes.until(lambda command=command: "works again" in command.output, what="processes to resume")
        assert not command.failures
    assert [command.end() for command in commands] == [0, 0]


# Records


class Corruptor:
    """Corrupts one record after another, and remembers the jobs whose records it changed."""

    def __init__(self, client: Redis, keys: Keys, rng: random.Random) -> None:
        self._client, self._keys, self._rng = client, keys, rng
        self.affected: set[str] = set()
        self.done: Counter[str] = Counter()

    def corrupt_critical_records(self) -> None:
        """Make two changes that broke earlier versions: one ended a dispatcher, one kept a worker from claiming."""
        self._client.zadd(self._keys.scheduled("default"), {b"x" * 14: float("-inf")})
        for worker in self._client.hkeys(self._keys("exchanges")):
            self._client.hset(self._keys("exchanges"), worker, b"x")

    def corrupt_one(self) -> None:
        """Corrupt an existing record, or invent one."""
        noun = self._rng.choice([*FIXED, "scheduled", "ready"])
        key = getattr(self._keys, noun)("default") if noun in ("scheduled", "ready") else self._keys(noun)
        garbage = self._rng.choice([b"", b"\xff", b"x" * 9, self._rng.randbytes(40), b"[]", b"\0" * 30])
        match CATALOGUE[noun][0]:
            case "hash":
                field = self._client.hrandfield(key) or garbage
                how = self._rng.choice(["drop", "garble", "add"])
                if how == "drop":
                    self._client.hdel(key, field)
                else:
                    self._client.hset(key, field if how == "garble" else garbage, garbage)
            case "zset":
                field = self._client.zrandmember(key) or garbage
                how = self._rng.choice(["drop", "garble", "add"])
                if how == "drop":
                    self._client.zrem(key, field)
                else:
                    score = self._rng.choice([0, -1, 0.5, 1e300, float("inf"), float("-inf"), 2**53])
                    self._client.zadd(key, {field if how == "garble" else garbage: score})
            case "set":
                field, how = b"", "add"
                self._client.sadd(key, garbage)
            case _:
                field, how = b"", "garble"
                self._client.set(key, garbage)
        self.done[f"{how} {noun}"] += 1
        self.affected.add(bytes(field)[:12].hex())


def test_random_corruption_affects_only_jobs_with_corrupted_records(
    processes: Processes, client: Redis, seed: int
) -> None:
    processes.configure(LEASE=1)
    commands = [processes.dispatcher(), processes.worker()]
    corruptor = Corruptor(client, processes.keys, random.Random(seed))
    kinds: list[Callable[[int], Any]] = [
        lambda n: tasks.record.using(delay=0.2).job(n),
        lambda n: tasks.nap.using(key=f"k{n}").job(0.1),
        lambda n: tasks.fail.job(1),
    ]
    with SteadyLoad(lambda n: kinds[n % 3](n)) as load:
        load.until_accepted(5)
        corruptor.corrupt_critical_records()
        # The loop counts affected jobs, because random choices may hit the same job repeatedly.
        while sum(corruptor.done.values()) < 200 or len(corruptor.affected) <= 50:
            load.until_accepted(1)
            corruptor.corrupt_one()
    assert load.unexpected_errors == []
    unaffected = {job for job in load.accepted if job.split("-")[0] not in corruptor.affected}
    assert len(unaffected) > 50 < len(corruptor.affected)
    # All unaffected jobs have run. A repair beside running processes fixes the records, and new jobs run.
    processes.until(lambda: unaffected <= {run["id"] for run in processes.runs()}, what="the unaffected to run")
    audit = ConsistencyCheck(get_store().shards[0])
    assert list(audit.walk(repair=True)), "corruption that leaves no trace proves nothing"

    def left(**how: bool) -> list[Inconsistency]:
        """Return what a walk finds, but damaged records of schedules: nobody knows what they were."""
        return [each for each in audit.walk(**how) if each.code != "SCHEDULE_DAMAGED"]

    # One repair can expose the next inconsistency.
    processes.until(lambda: not left(repair=True), what="a walk that finds nothing to repair")
    assert left() == []
    sound = [tasks.record.using(delay=0.1, queue=queue).enqueue() for queue in ("default", "new")]
    processes.until_gone(sound)
    runs = Counter((run["id"], run["attempt"]) for run in processes.runs() if run["id"] in unaffected)
    assert max(runs.values()) == 1
    assert [command.end() for command in commands] == [0, 0]
    assert "this is a bug" not in commands[0].output + commands[1].output
