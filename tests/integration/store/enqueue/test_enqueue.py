"""Enqueue: what is stored, where and in which order, and who is notified."""

import random
from typing import Any

import pytest

from django_delayq.exceptions import StoreRejected
from django_delayq.job.outcome import Action
from tests.shard_apis import DAY, HOUR, MS, SECOND, START, ShardApis, ids, settlement

SPANS = pytest.mark.parametrize("span", [1, SECOND, DAY, 365 * DAY, 3_650 * DAY])


@SPANS
def test_due_time_is_kept_to_the_microsecond(apis: ShardApis, span: int) -> None:
    receipt = apis.enqueue(apis.draft(due=START + span))
    assert list(apis.scheduled().values()) == receipt.due_us == [START + span]


@SPANS
def test_delay_counts_from_the_servers_time_to_the_microsecond(apis: ShardApis, span: int) -> None:
    apis.enqueue(apis.draft().rescheduled(delay_us=span, due_us=None, called_at=apis.clock.steady()))
    assert list(apis.scheduled().values()) == [START + span]


def test_wait_for_the_commit_is_subtracted_from_the_delay(apis: ShardApis) -> None:
    draft = apis.draft().rescheduled(delay_us=10 * SECOND, due_us=None, called_at=apis.clock.steady())
    apis.clock.advance(2_500_000)
    receipt = apis.enqueue(draft)
    assert list(apis.scheduled().values()) == receipt.due_us == [START + 10 * SECOND]


@pytest.mark.parametrize("due", [START, START - 1, START - 3_650 * DAY, -62_135_596_800_000_000])
def test_job_due_now_or_in_the_past_is_ready_and_ranks_from_now(apis: ShardApis, due: int) -> None:
    late = apis.add(due=due)
    now = apis.add(due=START)
    assert apis.where(late) == ["ready:default"]
    assert apis.ready()[late] == apis.ready()[now]


def test_job_due_a_microsecond_ahead_waits(apis: ShardApis) -> None:
    assert apis.where(apis.add(due=START + 1)) == ["scheduled:default"]


def test_job_without_a_time_is_ready_at_once(apis: ShardApis) -> None:
    assert apis.where(apis.add()) == ["ready:default"]


def test_every_priority_stands_strictly_before_the_next_one(apis: ShardApis) -> None:
    priorities = list(range(-100, 101))
    random.Random(7).shuffle(priorities)
    made = {}
    for priority in priorities:
        # Each one is later than the one before: between priorities, time decides nothing.
        made[priority] = apis.add(priority=priority)
        apis.clock.advance(DAY)
    assert list(apis.ready()) == [made[priority] for priority in range(100, -101, -1)]


def test_due_job_does_not_overtake_a_higher_priority(apis: ShardApis) -> None:
    due = apis.add(priority=0, due=START)
    apis.clock.advance(100 * DAY)
    urgent = apis.add(priority=1)
    assert list(apis.ready()) == [urgent, due]


def test_jobs_due_at_the_same_time_stay_in_the_order_of_creation(apis: ShardApis) -> None:
    drafts = [apis.draft(number) for number in range(300)]
    shuffled = random.Random(7).sample(drafts, len(drafts))
    apis.enqueue(*shuffled[:150])
    apis.enqueue(*shuffled[150:])
    assert list(apis.ready()) == [draft.job.raw_id for draft in drafts]


def test_batch_of_500_goes_to_all_its_queues(apis: ShardApis) -> None:
    drafts = [apis.draft(queue=f"q{n % 7}", delay=n % 2 or None) for n in range(500)]
    receipt = apis.enqueue(*drafts)
    counts = apis.inspection.counts()
    assert sum(counts.scheduled.values()) == sum(counts.ready.values()) == 250
    assert set(counts.ready) == {f"q{n}" for n in range(7)}
    assert receipt.due_us == [START + n % 2 for n in range(500)]


def test_ready_jobs_notify_their_queue_once(apis: ShardApis) -> None:
    apis.add()
    apis.add()
    apis.add(queue="other", delay=HOUR)
    notify_keys = [apis.keys.notify("default"), apis.keys.notify("other")]
    assert apis.notifications(*notify_keys) == [1, 0]


def test_the_dispatcher_is_notified_if_nobody_promotes(apis: ShardApis) -> None:
    apis.add(delay=HOUR)
    assert apis.notifications(apis.keys("notify_dispatcher")) == [1]


def test_the_dispatcher_is_notified_only_of_a_time_before_the_next_promotion(apis: ShardApis) -> None:
    apis.add()
    apis.promote()
    wake_at = START + apis.config.dispatcher.sweep_us
    assert int(apis.client.get(apis.keys("next_promotion"))) == wake_at
    apis.client.delete(apis.keys("notify_dispatcher"))
    notified = []
    for due in (wake_at + HOUR, wake_at, wake_at - 1):
        apis.add(due=due)
        notified += apis.notifications(apis.keys("notify_dispatcher"))
    assert notified == [0, 0, 1]


def test_the_earliest_job_of_a_batch_decides_whether_the_dispatcher_is_notified(apis: ShardApis) -> None:
    apis.add()
    apis.promote()
    soon = apis.draft(queue="b", delay=SECOND)
    apis.enqueue(apis.draft(queue="a", delay=HOUR), soon, apis.draft(queue="c", delay=DAY))
    assert apis.notifications(apis.keys("notify_dispatcher")) == [1]


def test_a_ready_job_notifies_workers_of_its_queue_and_of_all_queues(apis: ShardApis) -> None:
    notified = []
    for delay in (HOUR, None, None):
        apis.add(queue="a", delay=delay)
        notified.append(apis.notifications(apis.keys.notify("a"), apis.keys("notify")))
    assert notified == [[0, 0], [1, 1], [1, 1]]


def test_full_memory_refuses_the_batch_as_a_whole(own_apis: ShardApis) -> None:
    waiting = own_apis.add(delay=HOUR)
    before = own_apis.client.dbsize()
    own_apis.fill_memory()
    with pytest.raises(StoreRejected) as error:
        own_apis.enqueue(own_apis.draft(), own_apis.draft(key="k", delay=HOUR), own_apis.draft(queue="new"))
    assert error.value.code == "OOM"
    assert not error.value.maybe_accepted
    assert own_apis.client.dbsize() == before
    assert own_apis.client.hkeys(own_apis.keys("jobs")) == [waiting]
    own_apis.free_memory()
    own_apis.add()


@pytest.mark.parametrize("code", ["READONLY", "NOREPLICAS"])
def test_server_that_takes_no_writes_refuses_the_batch_as_a_whole(own_apis: ShardApis, code: str) -> None:
    if code == "READONLY":
        own_apis.client.replicaof("127.0.0.1", "1")
    else:
        own_apis.client.config_set("min-replicas-to-write", 1)
    with pytest.raises(StoreRejected) as error:
        own_apis.add(delay=HOUR)
    assert error.value.code == code
    assert not error.value.maybe_accepted
    assert own_apis.client.dbsize() == 0


def test_flushed_scripts_are_loaded_again(apis: ShardApis) -> None:
    apis.add()
    apis.client.script_flush()
    apis.add()
    assert len(apis.ready()) == 2


ODD_NAMES = {
    "spaces": ("two words", b"two%20words"),
    "colons": ("a:b::", b"a%3Ab%3A%3A"),
    "braces": ("}{x}", b"%7D%7Bx%7D"),
    "wildcards": ("*[a-z]?\\", b"%2A%5Ba-z%5D%3F%5C"),
    "non-ASCII": ("Köln→東京", b"K%C3%B6ln%E2%86%92%E6%9D%B1%E4%BA%AC"),
    "surrogate": ("a\ud800b", b"a%ED%A0%80b"),
    "newline and NUL": ("\n\0", b"%0A%00"),
    "percent": ("100%25", b"100%2525"),
    "longest": ("q" * 200, b"q" * 200),
}


@pytest.mark.parametrize(("queue", "encoded"), ODD_NAMES.values(), ids=list(ODD_NAMES))
def test_queue_of_any_name_serves_a_whole_life(apis: ShardApis, queue: str, encoded: bytes) -> None:
    raw_id = apis.add(queue=queue, delay=SECOND)
    assert apis.client.exists(b"delayq:{0}:scheduled:" + encoded)
    assert apis.shard.read_queues() == [queue]
    apis.clock.advance(SECOND)
    assert apis.promote().moved == 1
    assert apis.client.exists(b"delayq:{0}:notify:" + encoded)
    worker = apis.worker()
    (claim,) = worker.take(1, queue).claims
    assert (claim.queue, claim.job and claim.job.queue) == (queue, queue)
    assert ids(worker.take(1, queue, settle=[settlement(claim, Action.RETRY)]).claims) == []
    apis.promote()
    (claim,) = worker.take(1, queue).claims
    worker.take(0, queue, settle=[settlement(claim, Action.RELEASE)])
    assert apis.inspection.find(raw_id).job == claim.job
    assert apis.inspection.counts().ready == {queue: 1}
    assert apis.operations.move(raw_id, f"{queue[:100]}!")
    assert apis.operations.cancel(raw_id)
    assert apis.traces(raw_id) == []


@pytest.mark.parametrize("value", ["\0", "\ud800", 2**64, 1.5, [[]], {"": None}])
def test_arguments_survive_exactly(apis: ShardApis, value: Any) -> None:
    apis.add(value)
    (claim,) = apis.worker().take().claims
    assert claim.job is not None
    assert claim.job.args == [value]
    assert claim.claimed_us // MS == START // MS
