"""The key catalogue against a server on which every API was used."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from django_delayq import store
from django_delayq.conf.limit_rules import LimitRule
from django_delayq.job.job import LimitUse, State
from django_delayq.job.outcome import Action
from django_delayq.job.unsent import Throttle
from django_delayq.store.client.script import Script
from django_delayq.store.keys import CATALOGUE
from django_delayq.testing.local_redis import LocalRedisServer
from tests.exercise_all_apis import exercise_all_apis
from tests.shard_apis import SECOND, ShardApis

SCRIPTS = [path.stem for path in Path(store.__file__).parent.glob("lua/[!_]*.lua")]
PER_QUEUE = {"scheduled", "ready", "recovered", "parked", "notify"}
PER_JOB = {"results"}
PER_WORKER = {"notify_worker"}
#: Names by which scripts know a key of another noun.
OTHER_NAMES = {
    "to_scheduled": {"scheduled"},
    "to_ready": {"ready"},
    "to_recovered": {"recovered"},
    "to_notify": {"notify"},
    "queue_notify": {"notify"},
    "worker_notify": {"notify_worker"},
}
#: Scripts that get a key of another noun under a noun's name.
OTHER_NOUNS = {("notify", "notify"): {"notify", "notify_sent_on"}}


@pytest.fixture
def apis(client: Redis, redis_url: str) -> Iterator[ShardApis]:
    """The apis of shard 0."""
    apis = ShardApis(redis_url, PREFIX="a-prefix")
    yield apis
    apis.close()


def noun_of(key: bytes | str) -> tuple[str, str]:
    """Return noun and queue of a key that is built as all keys are."""
    text = key.decode() if isinstance(key, bytes) else key
    parts = re.fullmatch(r"a-prefix:\{0\}:(?P<noun>\w+)(?::(?P<queue>[\w.~%-]+))?", text)
    assert parts, f"{text} is not built like a key"
    return parts["noun"], parts["queue"] or ""


def test_every_key_is_in_the_catalogue_with_its_type(apis: ShardApis) -> None:
    exercise_all_apis(apis)
    for key in apis.client.keys("*"):
        noun, queue = noun_of(key)
        assert noun in CATALOGUE
        assert apis.client.type(key).decode() == CATALOGUE[noun][0], key
        assert not queue or noun in PER_QUEUE | PER_JOB | PER_WORKER
        assert queue or noun not in PER_QUEUE | PER_JOB | PER_WORKER or noun == "notify"


def test_every_noun_of_the_catalogue_is_in_use(apis: ShardApis) -> None:
    exercise_all_apis(apis)
    assert {noun_of(key)[0] for key in apis.client.keys("*")} == set(CATALOGUE)


def test_nothing_expires_but_kept_results_and_notifications_of_single_workers(apis: ShardApis) -> None:
    exercise_all_apis(apis)
    expiring = {noun_of(key)[0] for key in apis.client.keys("*") if apis.client.ttl(key) != -1}
    assert expiring == {"results", "notify_worker"}


def test_a_notification_list_holds_at_most_one_element(apis: ShardApis) -> None:
    exercise_all_apis(apis)
    lists = [key for key in apis.client.keys("*") if apis.client.type(key) == b"list"]
    assert lists
    assert {apis.client.llen(key) for key in lists} == {1}


def test_scripts_get_the_keys_they_name(apis: ShardApis, redis_server: LocalRedisServer) -> None:
    scripts = {script.sha: script.name for script in map(Script, SCRIPTS)}
    calls: dict[str, list[list[str]]] = {}
    with redis_server.client() as other, other.monitor() as monitor:
        exercise_all_apis(apis)
        apis.client.echo("the end")
        for each in iter(monitor.next_command, None):
            command, *parts = each["command"].split(" ")
            if command == "ECHO":
                break
            if command == "EVALSHA":
                sha, number, *rest = parts
                calls.setdefault(scripts[sha], []).append(rest[: int(number)])
    for name, batches in calls.items():
        names = Script(name).key_names
        for keys in batches:
            for key_name, key in zip(names, keys, strict=False):
                noun, queue = noun_of(key)
                nouns = OTHER_NOUNS.get((name, key_name)) or OTHER_NAMES.get(key_name, {key_name})
                assert noun in nouns, f"{name}.lua: {key_name} is {key}"
                of_one = noun in PER_JOB | PER_WORKER or (noun in PER_QUEUE and key_name != "notify")
                assert bool(queue) == of_one, f"{name}.lua: {key_name} is {key}"
            # A page is of any place.
            others = {"page": {"leases", "dead_letters"}}.get(name, set())
            if name in ("settle_and_claim", "cancel", "reclaim"):
                others = PER_JOB
            assert {noun_of(key)[0] for key in keys[len(names) :]} <= PER_QUEUE | others
    assert set(calls) == {
        *(
            "enqueue",
            "enqueue_one",
            "promote",
            "settle_and_claim",
            "claim_one",
            "heartbeat",
            "reclaim",
            "cancel",
            "reschedule",
        ),
        *(
            "move",
            "take_places",
            "requeue",
            "undo_requeue",
            "discard",
            "find",
            "page",
            "snapshot",
            "due_histogram",
            "read_totals",
            "report",
            "pause",
            "resume",
            "pause_tenant",
            "resume_tenant",
            "find_tenants",
            "quiet",
            "stop",
            "notify",
        ),
        *("let_in", "set_limits", "take_slot", "give_back_slot", "back_off"),
        *("pause_task", "resume_task", "find_limits", "find_error_groups"),
        *("set_schedules", "pause_schedule", "resume_schedule", "delete_schedules", "plant"),
        *("declare_schedules", "revive", "hand_over_schedule", "take_over_schedule", "set_layout", "count_lingering"),
    }


def test_nothing_but_registries_is_left_when_all_jobs_have_ended(apis: ShardApis) -> None:
    """Anything that a job left behind forever would fill the memory in the end."""
    _run_limited(apis, "default")
    for number in range(3):
        apis.operations.cancel(apis.add(key=f"{number}", delay=1))
        apis.operations.cancel(apis.add(key=f"{number}", unique=Throttle(60)))
    apis.kill(apis.add(key="k", unique=Throttle(1)))
    apis.clock.advance(SECOND)
    apis.add_dead(key="k")
    for letter in apis.inspection.page(State.DEAD).rows:
        apis.operations.discard(letter.raw_id, died_us=letter.moment_us)
    apis.promote()
    left = {noun_of(key)[0] for key in apis.client.keys("*")}
    assert left <= {
        *(
            "queues",
            "queues_version",
            "workers",
            "dispatchers",
            "enqueued",
            "exchanges",
            "worker_names",
            "next_promotion",
            "notify_dispatcher",
            "notify",
            "shards",
            "limit_rules",
            # Of groups without dead letters, for a week.
            "error_groups",
        ),
    }


def test_nothing_but_rules_is_left_of_limits_when_no_job_uses_them(apis: ShardApis) -> None:
    for queue in ("default", "fair"):
        _run_limited(apis, queue)
    nouns = {"parked", *(noun for noun in CATALOGUE if "limit" in noun), "waiting_for"}
    assert {noun_of(key)[0] for key in apis.client.keys("*")} & nouns == {"limit_rules"}


def _run_limited(apis: ShardApis, queue: str) -> None:
    """Run jobs under a limit, one of which was let in, and cancel one that waits."""
    worker, limit = apis.worker(), LimitUse("one", queue)
    apis.operations.limits.set_limits([("one", LimitRule(interval_us=SECOND, max_running=1))])
    *_, last = [apis.add(queue=queue, tenant="acme", limits=[limit]) for _ in range(3)]
    for number in range(2):
        apis.let_in()
        [claim] = worker.take(5, queue).claims
        if number:
            apis.operations.cancel(last)
        worker.settle(claim, Action.ACKNOWLEDGE)
        apis.clock.advance(SECOND)
    # The dispatcher looks at the limit once more, and finds that no job waits for it.
    apis.clock.advance(apis.config.dispatcher.sweep_us)
    apis.let_in()
