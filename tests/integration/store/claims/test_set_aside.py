"""Set aside: jobs whose last attempt crashed wait beside their queue until a worker has a process for one."""

from collections.abc import Sequence
from typing import Any

import pytest

from django_delayq.job.attempts import NO_ATTEMPTS
from django_delayq.job.job import State
from django_delayq.job.outcome import Action
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from django_delayq.store.promotion import Reclaim
from tests.shard_apis import SECOND, ShardApis, ids, one_more


def came_back(apis: ShardApis, count: int = 1, *, queue: str = "default", **options: Any) -> list[bytes]:
    """Let a worker crash that holds so many jobs. Return their ids in order."""
    drafts = [apis.draft(queue=queue, **options) for _ in range(count)]
    apis.enqueue(*drafts)
    crashed, held = apis.worker(), list[Any]()
    while len(held) < count:
        held += crashed.take(64, queue, may_recover=False).claims
    items = apis.promotion.read_expired_leases(apis.expired_leases())
    back = [
        Reclaim(lease=item.lease, attempts=one_more(item.attempts, suspect=True), queue=item.queue) for item in items
    ]
    assert sum(apis.promotion.reclaim(back)) == count
    return ids(held)


def suspects(apis: ShardApis, count: int) -> list[bytes]:
    """Return jobs whose last attempt crashed, and which are ready after their delay."""
    made = [apis.add() for _ in range(count)]
    worker = apis.worker()
    for _ in made:
        worker.settle(worker.take(1).claims[0], Action.RETRY, suspect=True, delay=SECOND)
    apis.clock.advance(SECOND)
    apis.promote()
    return list(apis.ready())


def called(apis: ShardApis, step: Any) -> dict[str, int]:
    """Return how often Redis ran each command meanwhile."""
    apis.client.config_resetstat()
    step()
    stats = apis.client.info("commandstats")
    return {name.removeprefix("cmdstat_"): int(stat["calls"]) for name, stat in stats.items()}


def test_a_worker_without_a_process_learns_of_them_and_claims_others(apis: ShardApis) -> None:
    back = came_back(apis, 3)
    others = [apis.add() for _ in range(2)]
    answer = apis.worker().take(8, may_recover=False)
    assert (ids(answer.claims), answer.recovered, answer.has_more) == (others, True, False)
    assert list(apis.recovered()) == back


def test_a_worker_with_a_process_claims_one_at_a_time_in_the_order_of_ranks(apis: ShardApis) -> None:
    back = came_back(apis, 2)
    urgent, last = apis.add(priority=50), apis.add()
    worker = apis.worker()
    taken = [worker.take(8) for _ in range(4)]
    assert [ids(answer.claims) for answer in taken] == [[urgent], [back[0]], [back[1]], [last]]
    assert [answer.recovered for answer in taken] == [True, True, False, False]


def test_a_claim_sets_crashed_jobs_aside_once_and_at_their_old_rank(apis: ShardApis) -> None:
    made = suspects(apis, 3)
    ranks = apis.ready()
    fresh = apis.add()
    worker = apis.worker()
    apis.notifications(apis.keys.notify("default"))
    answer = worker.take(1, may_recover=False)
    assert (ids(answer.claims), answer.recovered, answer.has_more) == ([fresh], True, False)
    assert apis.recovered() == ranks
    assert list(apis.recovered()) == made
    assert apis.notifications(apis.keys.notify("default")) == [1]
    # They are neither read nor written again, and their notification does not keep the worker busy.
    calls = called(apis, lambda: worker.take(8, may_recover=False))
    assert "zadd" not in calls or calls["zadd"] == 1
    assert apis.notifications(apis.keys.notify("default")) == [0]


def test_a_claim_looks_past_more_crashed_jobs_than_it_wants(apis: ShardApis) -> None:
    count = 600
    drafts = [apis.draft() for _ in range(count)]
    apis.enqueue(*drafts[:250])
    apis.enqueue(*drafts[250:500])
    apis.enqueue(*drafts[500:])
    suspect = one_more(NO_ATTEMPTS, suspect=True).pack()
    apis.client.hset(apis.keys("attempts"), mapping={draft.job.raw_id: suspect for draft in drafts})
    fresh = apis.add(priority=-100)
    worker = apis.worker()
    first = worker.take(1, may_recover=False)
    # Not more in one step, so that it does not block Redis; a notification announces the rest.
    assert (ids(first.claims), first.has_more) == ([], True)
    assert 512 <= len(apis.recovered()) < 600
    assert ids(worker.take(1, may_recover=False).claims) == [fresh]
    assert len(apis.recovered()) == count


def test_a_claim_takes_jobs_before_and_after_one_that_it_sets_aside(apis: ShardApis) -> None:
    (suspect,) = suspects(apis, 1)
    first, last = apis.add(priority=50), apis.add(priority=-50)
    answer = apis.worker().take(3, may_recover=False)
    assert (ids(answer.claims), answer.has_more) == ([first, last], False)
    assert list(apis.recovered()) == [suspect]


def test_a_thousand_set_aside_cost_a_claim_two_exists_and_no_read(apis: ShardApis) -> None:
    for _ in range(2):
        came_back(apis, 500)
    worker, costs = apis.worker(), list[dict[str, int]]()
    for queue in ("none of them", "default"):
        apis.add(queue=queue)
        costs.append(called(apis, lambda queue=queue: worker.take(1, queue, may_recover=False)))
    without, with_them = costs
    assert with_them == without
    # One for recovered jobs, one for limits.
    assert with_them["exists"] == 2
    assert len(apis.recovered()) == 1_000


def test_none_is_reported_if_all_are_of_paused_or_other_queues(apis: ShardApis) -> None:
    came_back(apis, queue="paused")
    came_back(apis, queue="other")
    apis.operations.pause("paused", by="ann")
    worker = apis.worker()
    for may_recover in (False, True):
        answer = worker.take(8, "paused", "default", may_recover=may_recover)
        assert (answer.claims, answer.recovered, answer.has_more) == ([], False, False)
    apis.notifications(apis.keys.notify("paused"))
    apis.operations.resume("paused")
    assert apis.notifications(apis.keys.notify("paused")) == [1]
    assert len(worker.take(8, "paused").claims) == 1


def test_strict_order_counts_more_than_rank(apis: ShardApis) -> None:
    back = {queue: came_back(apis, queue=queue)[0] for queue in ("b", "a")}
    ready = apis.add(queue="a")
    worker = apis.worker()
    taken = [ids(worker.take(8, "a", "b", strict=True).claims) for _ in range(3)]
    assert taken == [[back["a"]], [ready], [back["b"]]]


def test_a_worker_that_claims_one_notifies_of_the_others(apis: ShardApis) -> None:
    came_back(apis, 2)
    worker = apis.worker()
    for notifications in (1, 0):
        apis.notifications(apis.keys.notify("default"))
        assert len(worker.take(8).claims) == 1
        assert apis.notifications(apis.keys.notify("default")) == [notifications]


def test_cancel_reschedule_move_and_find_know_the_place(apis: ShardApis) -> None:
    back = came_back(apis, 4, key=None)
    ranks = apis.recovered()
    operations = apis.operations
    assert operations.cancel(back[0])
    assert apis.traces(back[0]) == []
    assert operations.reschedule(back[1], delay_us=SECOND)
    assert apis.where(back[1]) == ["scheduled:default"]
    assert operations.move(back[2], "other")
    assert apis.recovered("other") == {back[2]: ranks[back[2]]}
    found = apis.inspection.find(back[3])
    assert (found.state, found.attempts.crash_suspected) == (State.READY, True)


def test_pages_counts_and_snapshots_show_them_among_the_ready(apis: ShardApis) -> None:
    back = came_back(apis, 3)
    ready = apis.add()
    assert apis.inspection.counts().ready == {"default": 4}
    page = apis.inspection.page(State.READY, queues=["default"])
    assert [(row.raw_id, row.recovered, row.queue) for row in page.rows] == [
        *((raw_id, True, "default") for raw_id in back),
        (ready, False, "default"),
    ]
    assert (page.total, page.rows[0].due_us) == (4, apis.inspection.find(back[0]).moment_us)
    state = apis.store.dashboard(apis.shard.index).snapshot().queues["default"]
    assert (state.ready, state.oldest_ready_us) == (4, page.rows[0].due_us)


@pytest.mark.parametrize(
    ("damage", "word", "place"),
    [
        ("in ready too", "DUPLICATE", "recovered:default"),
        ("in the schedule too", "DUPLICATE", "recovered:default"),
        ("of another queue", "MISPLACED", "recovered:default"),
        ("without a body", "MISSING", ""),
        ("not an entry", "MALFORMED", "recovered:default"),
        ("in no place", "ORPHANED", "ready:default"),
    ],
)
def test_the_consistency_check_knows_the_place(apis: ShardApis, damage: str, word: str, place: str) -> None:
    (raw_id,) = came_back(apis)
    client, keys = apis.client, apis.keys
    [(member, rank)] = client.zrange(keys.recovered("default"), 0, -1, withscores=True)
    check = ConsistencyCheck(apis.shard)
    assert list(check.walk(repair=True)) == []
    match damage:
        case "in ready too":
            client.zadd(keys.ready("default"), {member: 5})
        case "in the schedule too":
            client.zadd(keys.scheduled("default"), {member: 5})
        case "of another queue":
            client.zadd(keys("queues"), {"other": 1})
            client.rename(keys.recovered("default"), keys.recovered("other"))
        case "without a body":
            client.hdel(keys("jobs"), raw_id)
        case "not an entry":
            client.zadd(keys.recovered("default"), {b"x": 5})
        case "in no place":
            client.delete(keys.recovered("default"))
    words = {finding.code for finding in check.walk(repair=True)}
    assert word in words
    for _ in range(3):
        left = list(check.walk(repair=True))
    assert left == []
    assert apis.where(raw_id) == ([place] if place else [])
    if place.startswith("recovered"):
        assert apis.recovered() == {raw_id: rank}


@pytest.mark.parametrize("may_recover", [True, False])
def test_a_key_of_another_type_in_the_place_stops_no_claim(apis: ShardApis, may_recover: bool) -> None:
    apis.client.set(apis.keys.recovered("default"), "x")
    raw_id = apis.add()
    worker = apis.worker()
    assert ids(worker.take(8, may_recover=may_recover).claims) == [raw_id]
    # A worker with a process finds none, and does not look again.
    assert not worker.take(8).recovered


def test_a_key_of_another_type_in_the_place_is_replaced(apis: ShardApis) -> None:
    (raw_id,) = suspects(apis, 1)
    apis.client.set(apis.keys.recovered("default"), "x")
    assert apis.worker().take(8, may_recover=False).recovered
    assert list(apis.recovered()) == [raw_id]


def test_a_manually_edited_entry_in_the_place_is_dropped(apis: ShardApis) -> None:
    (raw_id,) = came_back(apis)
    apis.client.zadd(apis.keys.recovered("default"), {b"x": 1, b"y" * 30: 2})
    worker = apis.worker()
    taken: Sequence[bytes] = []
    for _ in range(3):
        taken = taken or ids(worker.take(8).claims)
    assert taken == [raw_id]
    assert apis.recovered() == {}


def test_an_interrupted_job_keeps_its_place_in_the_queue(apis: ShardApis) -> None:
    first, second = apis.add(), apis.add()
    ranks = apis.ready()
    apis.clock.advance(SECOND)
    worker = apis.worker()
    (claim,) = worker.take(1).claims
    worker.settle(claim, Action.RETRY, keeps_rank=True)
    assert apis.ready() == ranks
    assert list(apis.ready()) == [first, second]
    assert apis.worker().take(1).claims[0].attempts.ended == 1


def test_a_repeated_exchange_returns_the_recovered_job(apis: ShardApis) -> None:
    (raw_id,) = came_back(apis)
    worker = apis.worker()
    assert ids(worker.take(8).claims) == [raw_id] == ids(worker.again().claims)
