"""Snapshot and coming: one moment's numbers, per queue and in all, and what becomes due when."""

from dataclasses import replace

import pytest

from django_delayq.exceptions import StoreError
from django_delayq.store.client.server_info import ServerInfo
from django_delayq.store.queries.snapshot import combined
from tests.shard_apis import DAY, HOUR, SECOND, START, Doors


def test_a_snapshot_counts_what_is_where(doors: Doors) -> None:
    doors.add(queue="mail", delay=SECOND)
    doors.add(queue="mail", delay=HOUR)
    doors.add(queue="bulk")
    doors.add_dead(queue="bulk")
    doors.clock.advance(2 * HOUR)
    doors.add(queue="run")
    doors.worker().take(1, "run")
    doors.add_dead(queue="late")
    doors.clock.advance(5 * SECOND)
    snapshot = doors.store.dashboard(0).snapshot()
    mail, bulk = snapshot.queues["mail"], snapshot.queues["bulk"]
    assert snapshot.now_us == doors.clock.now_us
    assert (mail.scheduled, mail.ready, mail.overdue) == (2, 0, 2)
    assert (mail.oldest_overdue_us, mail.next_due_us, mail.oldest_ready_us) == (START + SECOND, None, None)
    assert (bulk.scheduled, bulk.ready, bulk.oldest_ready_us) == (0, 1, START // 1_000 * 1_000)
    assert (snapshot.scheduled, snapshot.ready, snapshot.overdue) == (2, 1, 2)
    assert (snapshot.claimed, snapshot.dead, snapshot.died_last_hour) == (1, 2, 1)
    assert snapshot.newest_death_us == START + 2 * HOUR


def test_the_next_due_time_is_that_of_the_first_job_that_is_not_due_yet(doors: Doors) -> None:
    for delay in (SECOND, HOUR, DAY):
        doors.add(delay=delay)
    doors.clock.advance(SECOND)
    queue = doors.store.dashboard(0).snapshot().queues["default"]
    assert (queue.overdue, queue.next_due_us) == (1, START + HOUR)


def test_a_delayed_job_in_ready_tells_when_it_was_due(doors: Doors) -> None:
    doors.add(delay=SECOND)
    doors.clock.advance(3 * SECOND)
    doors.promote()
    assert doors.store.dashboard(0).snapshot().queues["default"].oldest_ready_us == (START + SECOND) // 1_000 * 1_000


def test_an_empty_store_has_a_snapshot_too(doors: Doors) -> None:
    snapshot = doors.store.dashboard(0).snapshot(tasks=["t"])
    assert (snapshot.queues, snapshot.processes, snapshot.newest_death_us) == ({}, [], None)
    assert (snapshot.scheduled, snapshot.claimed, snapshot.dead) == (0, 0, 0)


def test_new_queues_are_noticed_and_so_are_those_that_a_flush_took(doors: Doors) -> None:
    survey = doors.store.dashboard(0)
    for queue in ("a", "b"):
        doors.add(queue=queue)
        assert queue in survey.snapshot().queues
    doors.client.flushall()
    doors.add(queue="c")
    doors.add(queue="d")
    assert list(survey.snapshot().queues) == ["c", "d"]


def test_a_snapshot_takes_one_round_trip_when_the_queues_are_known(doors: Doors) -> None:
    doors.add()
    survey = doors.store.dashboard(0)
    survey.snapshot()
    before = doors.client.info("commandstats")["cmdstat_evalsha"]["calls"]
    survey.snapshot(tasks=["t"] * 50)
    assert doors.client.info("commandstats")["cmdstat_evalsha"]["calls"] == before + 1


def test_coming_counts_each_job_in_the_span_it_is_due_in(doors: Doors) -> None:
    for queue, delay in (("a", 1), ("a", SECOND), ("b", SECOND), ("b", 2 * SECOND - 1), ("b", 2 * SECOND), ("c", DAY)):
        doors.add(queue=queue, delay=delay)
    edges = [START + number * SECOND for number in range(4)]
    survey = doors.store.dashboard(0)
    assert survey.due_histogram(edges, queues=["a", "b", "c"]) == [1, 3, 1]
    assert survey.due_histogram(edges, queues=["a"]) == [1, 1, 0]
    assert survey.due_histogram(edges, queues=[]) == [0, 0, 0]


@pytest.mark.parametrize("key", ["paused", "process_reports", "metrics", "quiet_workers"])
def test_a_key_of_another_type_is_an_error_and_no_crash(doors: Doors, key: str) -> None:
    doors.client.set(doors.keys(key), "x")
    with pytest.raises(StoreError):
        doors.store.dashboard(0).snapshot()


def test_snapshots_of_several_shards_are_one_picture(doors: Doors) -> None:
    doors.add(queue="mail", delay=HOUR)
    doors.operations.pause("mail", by="ann")
    doors.add_dead(queue="bulk")
    one = doors.store.dashboard(0).snapshot()
    doors.client.flushall()
    doors.add(queue="mail", delay=SECOND)
    doors.add(queue="mail")
    other = doors.store.dashboard(0).snapshot()
    whole = combined([one, other])
    assert (whole.scheduled, whole.ready, whole.dead) == (2, 1, 1)
    assert list(whole.queues) == ["bulk", "mail"]
    mail = whole.queues["mail"]
    assert (mail.scheduled, mail.next_due_us) == (2, START + SECOND)
    # Paused on one of them: its jobs there wait, and who resumes it mends that.
    assert mail.paused is not None
    assert combined([one]) is one


def test_what_the_server_says_of_itself_is_in_it_where_that_is_asked_for(doors: Doors) -> None:
    assert doors.store.dashboard(0).snapshot().server is None
    server = doors.store.dashboard(0).snapshot(facts=True).server
    assert server is not None
    assert server == replace(ServerInfo.fetch(doors.client), ahead_us=0, within_us=0, used_memory=server.used_memory)
    assert (server.policy, server.disk_ok, server.used_memory > 100_000) == ("noeviction", True, True)


def test_the_task_of_the_next_job_of_each_queue_is_told(doors: Doors) -> None:
    doors.add(queue="mail", delay=SECOND)
    damaged = doors.add(queue="damaged", delay=SECOND)
    doors.client.hset(doors.keys("jobs"), damaged, b"\xff")
    gone = doors.add(queue="gone", delay=SECOND)
    doors.client.hdel(doors.keys("jobs"), gone)
    doors.add(queue="ready")
    queues = doors.store.dashboard(0).snapshot().queues
    assert {name: queue.next_task for name, queue in queues.items()} == {
        **{"mail": "tests.sample_app.tasks.noop", "damaged": "", "gone": "", "ready": ""},
    }
