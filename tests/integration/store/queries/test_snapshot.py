"""Dashboard queries: jobs by state at one moment, and the histogram of due times."""

from dataclasses import replace

import pytest

from django_delayq.exceptions import StoreError
from django_delayq.store.queries.snapshot import combined
from django_delayq.store.servers.server_info import ServerInfo
from tests.shard_apis import DAY, HOUR, SECOND, START, ShardApis


def test_a_snapshot_counts_jobs_by_state(apis: ShardApis) -> None:
    apis.add(queue="mail", delay=SECOND)
    apis.add(queue="mail", delay=HOUR)
    apis.add(queue="bulk")
    apis.add_dead(queue="bulk")
    apis.clock.advance(2 * HOUR)
    apis.add(queue="run")
    apis.worker().take(1, "run")
    apis.add_dead(queue="late")
    apis.clock.advance(5 * SECOND)
    snapshot = apis.store.dashboard(0).snapshot()
    mail, bulk = snapshot.queues["mail"], snapshot.queues["bulk"]
    assert snapshot.now_us == apis.clock.now_us
    assert (mail.scheduled, mail.ready, mail.overdue) == (2, 0, 2)
    assert (mail.oldest_overdue_us, mail.next_due_us, mail.oldest_ready_us) == (START + SECOND, None, None)
    assert (bulk.scheduled, bulk.ready, bulk.oldest_ready_us) == (0, 1, START // 1_000 * 1_000)
    assert (snapshot.total.scheduled, snapshot.total.ready, snapshot.total.overdue) == (2, 1, 2)
    assert (snapshot.claimed, snapshot.dead, snapshot.died_last_hour) == (1, 2, 1)
    assert snapshot.newest_death_us == START + 2 * HOUR


def test_the_next_due_time_is_that_of_the_first_job_that_is_not_due_yet(apis: ShardApis) -> None:
    for delay in (SECOND, HOUR, DAY):
        apis.add(delay=delay)
    apis.clock.advance(SECOND)
    queue = apis.store.dashboard(0).snapshot().queues["default"]
    assert (queue.overdue, queue.next_due_us) == (1, START + HOUR)


def test_a_delayed_job_keeps_its_due_time_when_it_is_ready(apis: ShardApis) -> None:
    apis.add(delay=SECOND)
    apis.clock.advance(3 * SECOND)
    apis.promote()
    assert apis.store.dashboard(0).snapshot().queues["default"].oldest_ready_us == (START + SECOND) // 1_000 * 1_000


def test_an_empty_store_has_a_snapshot(apis: ShardApis) -> None:
    snapshot = apis.store.dashboard(0).snapshot(tasks=["t"])
    assert (snapshot.queues, snapshot.processes, snapshot.newest_death_us) == ({}, [], None)
    assert (snapshot.total.scheduled, snapshot.claimed, snapshot.dead) == (0, 0, 0)


def test_new_queues_are_found_and_those_lost_by_a_flush_are_not_shown(apis: ShardApis) -> None:
    dashboard = apis.store.dashboard(0)
    for queue in ("a", "b"):
        apis.add(queue=queue)
        assert queue in dashboard.snapshot().queues
    apis.client.flushall()
    apis.add(queue="c")
    apis.add(queue="d")
    assert list(dashboard.snapshot().queues) == ["c", "d"]


def test_a_snapshot_takes_one_round_trip_when_the_queues_are_known(apis: ShardApis) -> None:
    apis.add()
    dashboard = apis.store.dashboard(0)
    dashboard.snapshot()
    before = apis.client.info("commandstats")["cmdstat_evalsha"]["calls"]
    dashboard.snapshot(tasks=["t"] * 50)
    assert apis.client.info("commandstats")["cmdstat_evalsha"]["calls"] == before + 1


def test_due_histogram_counts_each_job_in_the_span_it_is_due_in(apis: ShardApis) -> None:
    for queue, delay in (("a", 1), ("a", SECOND), ("b", SECOND), ("b", 2 * SECOND - 1), ("b", 2 * SECOND), ("c", DAY)):
        apis.add(queue=queue, delay=delay)
    edges = [START + number * SECOND for number in range(4)]
    dashboard = apis.store.dashboard(0)
    found = dashboard.due_histogram(edges, queues=["a", "b", "c"])
    assert found["a"] == [1, 1, 0]
    assert [sum(counts) for counts in zip(*found.values(), strict=True)] == [1, 3, 1]
    assert dashboard.due_histogram(edges, queues=["a"]) == {"a": [1, 1, 0]}
    assert dashboard.due_histogram(edges, queues=[]) == dashboard.due_histogram([1, 2], queues=["a"]) == {}


@pytest.mark.parametrize("key", ["paused", "process_reports", "metrics", "quiet_workers"])
def test_a_key_of_another_type_raises_a_store_error(apis: ShardApis, key: str) -> None:
    apis.client.set(apis.keys(key), "x")
    with pytest.raises(StoreError):
        apis.store.dashboard(0).snapshot()


def test_snapshots_of_several_shards_are_combined(apis: ShardApis) -> None:
    apis.add(queue="mail", delay=HOUR)
    apis.operations.pause("mail", by="ann")
    apis.add_dead(queue="bulk")
    one = apis.store.dashboard(0).snapshot()
    apis.client.flushall()
    apis.add(queue="mail", delay=SECOND)
    apis.add(queue="mail")
    other = apis.store.dashboard(0).snapshot()
    whole = combined([one, other])
    assert (whole.total.scheduled, whole.total.ready, whole.dead) == (2, 1, 1)
    assert list(whole.queues) == ["bulk", "mail"]
    mail = whole.queues["mail"]
    assert (mail.scheduled, mail.next_due_us) == (2, START + SECOND)
    # Paused on one shard only: its jobs there wait until somebody resumes the queue.
    assert mail.paused is not None
    assert combined([one]) is one


def test_a_snapshot_has_facts_about_the_server_on_request(apis: ShardApis) -> None:
    assert apis.store.dashboard(0).snapshot().servers == {}
    [(address, server)] = apis.store.dashboard(0).snapshot(facts=True).servers.items()
    assert address == apis.config.redis.display_url
    now = {each: getattr(server, each) for each in ("used_memory", "commands_per_second", "connections")}
    assert server == replace(ServerInfo.fetch(apis.shard.route.node), ahead_us=0, within_us=0, **now)
    assert (server.policy, server.disk_ok, server.used_memory > 100_000) == ("noeviction", True, True)


def test_a_snapshot_names_the_task_of_the_next_job_of_each_queue(apis: ShardApis) -> None:
    apis.add(queue="mail", delay=SECOND)
    damaged = apis.add(queue="damaged", delay=SECOND)
    apis.client.hset(apis.keys("jobs"), damaged, b"\xff")
    gone = apis.add(queue="gone", delay=SECOND)
    apis.client.hdel(apis.keys("jobs"), gone)
    apis.add(queue="ready")
    queues = apis.store.dashboard(0).snapshot().queues
    assert {name: queue.next_task for name, queue in queues.items()} == {
        **{"mail": "tests.sample_app.tasks.noop", "damaged": "", "gone": "", "ready": ""},
    }
