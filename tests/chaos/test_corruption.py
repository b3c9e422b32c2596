"""Surgery by hand: records deleted, overwritten and made up while everything runs; what is broken harms itself alone.

A whole key of another type refuses the steps that need it, before they have changed anything: everybody waits, and goes
on where it was once the key is put right.
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
from django_delayq.store.promotion import Reclaim
from tests.chaos.steady_load import SteadyLoad
from tests.sample_app import tasks
from tests.shard_apis import SECOND, ShardApis, one_more, settlement
from tests.subprocesses import Processes

#: Keys that are not per queue, of those that a step needs.
FIXED = sorted(set(CATALOGUE) - {"scheduled", "ready", "notify", "notify_dispatcher", "shards"})
Step = Callable[[ShardApis, Any, list[Any]], Any]


def of_another_type(client: Redis, key: str) -> None:
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
    "enqueue later": lambda apis, worker, claims: apis.add(delay=SECOND),
    "promote": lambda apis, worker, claims: (apis.clock.advance(SECOND), apis.promotion.promote(["default"])),
    "claim": lambda apis, worker, claims: worker.take(5),
    "first claim": lambda apis, worker, claims: apis.worker().take(5, description="new"),
    "heartbeat": lambda apis, worker, claims: worker.door.heartbeat([claim.lease for claim in claims]),
    "reclaim": reclaim,
    **{
        str(how): lambda apis, worker, claims, how=how: worker.take(2, settle=[settlement(c, how) for c in claims])
        for how in Action
    },
    "cancel": lambda apis, worker, claims: apis.operations.cancel(next(iter(apis.schedule()))),
    "reschedule": lambda apis, worker, claims: apis.operations.reschedule(next(iter(apis.schedule())), delay_us=5),
    "move": lambda apis, worker, claims: apis.operations.move(next(iter(apis.schedule())), "another"),
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
            of_another_type(client, key)
            before = contents(client)
            try:
                step(apis, worker, claims)
            except (ScriptFault, StopIteration, ValueError) as fault:
                # What was to be changed cannot be found, or the step was refused.
                assert contents(client) == before, f"{name} with {key} of another type: half-done, then {fault}"
                refused.add(name)
            except Exception as error:
                assert "WRONGTYPE" in str(error), f"{name} with {key} of another type"
    # Else nothing was tried.
    assert refused == set(STEPS)


def test_processes_wait_while_keys_have_wrong_type_and_lose_nothing(processes: Processes, client: Redis) -> None:
    processes.configure(LEASE=2)
    commands = [processes.dispatcher(), processes.worker()]
    with SteadyLoad() as trickle:
        trickle.until_accepted(60)
    # wake_at is mended by the next promotion, and with it the sign that somebody promotes; the other is forgiven.
    nouns = [
        noun
        for noun in FIXED
        if noun not in ("next_promotion", "no_reclaim_before") and client.exists(processes.keys(noun))
    ]
    aside = {processes.keys(noun): f"aside:{noun}" for noun in nouns}
    # All at once: a step between two of these would see keys that are not there, and do its work without them.
    with client.pipeline() as surgery:
        for key, kept in aside.items():
            surgery.copy(key, kept)
            of_another_type(surgery, key)
        surgery.execute()
    assert len(aside) >= 5
    for command in commands:
        processes.until(lambda command=command: "waits for Redis" in command.output, what="all to wait")
    with client.pipeline() as surgery:
        for key, kept in aside.items():
            surgery.delete(key)
            surgery.copy(kept, key)
            surgery.delete(kept)
        surgery.execute()
    last = tasks.record.after(0.1).enqueue("last")
    processes.until_gone([last])
    processes.until_empty()
    trickle.accepted[last.id] = 0
    trickle.judge(processes, commands)
    for command in commands:
        processes.until(lambda command=command: "works again" in command.output, what="all to work again")
        assert "Traceback" not in command.output
    assert [command.end() for command in commands] == [0, 0]


# Records


class Surgeon:
    """Damage one record after another, and remember whose."""

    def __init__(self, client: Redis, keys: Keys, chance: random.Random) -> None:
        self._client, self._keys, self._chance = client, keys, chance
        self.harmed: set[str] = set()
        self.done: Counter[str] = Counter()

    def known(self) -> None:
        """Do what once ended a dispatcher, and what once made a worker deaf."""
        self._client.zadd(self._keys.scheduled("default"), {b"x" * 14: float("-inf")})
        for worker in self._client.hkeys(self._keys("exchanges")):
            self._client.hset(self._keys("exchanges"), worker, b"x")

    def operate(self) -> None:
        """Damage something that is there, or make something up."""
        noun = self._chance.choice([*FIXED, "scheduled", "ready"])
        key = getattr(self._keys, noun)("default") if noun in ("scheduled", "ready") else self._keys(noun)
        garbage = self._chance.choice([b"", b"\xff", b"x" * 9, self._chance.randbytes(40), b"[]", b"\0" * 30])
        match CATALOGUE[noun][0]:
            case "hash":
                field = self._client.hrandfield(key) or garbage
                how = self._chance.choice(["drop", "garble", "add"])
                if how == "drop":
                    self._client.hdel(key, field)
                else:
                    self._client.hset(key, field if how == "garble" else garbage, garbage)
            case "zset":
                field = self._client.zrandmember(key) or garbage
                how = self._chance.choice(["drop", "garble", "add"])
                if how == "drop":
                    self._client.zrem(key, field)
                else:
                    score = self._chance.choice([0, -1, 0.5, 1e300, float("inf"), float("-inf"), 2**53])
                    self._client.zadd(key, {field if how == "garble" else garbage: score})
            case "set":
                field, how = b"", "add"
                self._client.sadd(key, garbage)
            case _:
                field, how = b"", "garble"
                self._client.set(key, garbage)
        self.done[f"{how} {noun}"] += 1
        self.harmed.add(bytes(field)[:12].hex())


def test_random_corruption_affects_only_jobs_with_corrupted_records(
    processes: Processes, client: Redis, seed: int
) -> None:
    processes.configure(LEASE=1)
    commands = [processes.dispatcher(), processes.worker()]
    surgeon = Surgeon(client, processes.keys, random.Random(seed))
    kinds: list[Callable[[int], Any]] = [
        lambda n: tasks.record.using(delay=0.2).job(n),
        lambda n: tasks.nap.using(key=f"k{n}").job(0.1),
        lambda n: tasks.fail.job(1),
    ]
    with SteadyLoad(lambda n: kinds[n % 3](n)) as trickle:
        trickle.until_accepted(5)
        surgeon.known()
        # Until enough were met: chance may strike the same ones again and again.
        while sum(surgeon.done.values()) < 200 or len(surgeon.harmed) <= 50:
            trickle.until_accepted(1)
            surgeon.operate()
    assert trickle.faults == []
    unharmed = {job for job in trickle.accepted if job.split("-")[0] not in surgeon.harmed}
    assert len(unharmed) > 50 < len(surgeon.harmed)
    # Whoever was not harmed has run, what is wrong is put right beside running processes, and all goes on for those
    # who come now.
    processes.until(lambda: unharmed <= {run["id"] for run in processes.runs()}, what="the unharmed to run")
    audit = get_store().consistency_check(get_store().shards[0])
    assert list(audit.walk(repair=True)), "surgery that leaves no trace shows nothing"
    # One repair can uncover the next fault.
    processes.until(lambda: not list(audit.walk(repair=True)), what="a walk that finds nothing to repair")
    assert list(audit.walk()) == []
    sound = [tasks.record.using(delay=0.1, queue=queue).enqueue() for queue in ("default", "new")]
    processes.until_gone(sound)
    runs = Counter((run["id"], run["attempt"]) for run in processes.runs() if run["id"] in unharmed)
    assert max(runs.values()) == 1
    assert [command.end() for command in commands] == [0, 0]
    assert "this is a bug" not in commands[0].output + commands[1].output
