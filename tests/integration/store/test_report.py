"""Report: what processes tell of themselves, and the figures added up in Redis."""

import os
from typing import Any

import pytest

from django_delayq.metrics import (
    ALL_JOBS,
    MINUTE_US,
    MetricsBuffer,
    Stats,
    encode_rows,
    queue_dimension,
    task_dimension,
)
from tests.shard_apis import HOUR, SECOND, START, ShardApis


def rows(*, done: int = 1, queue: str = "mail", task: str = "shop.remind") -> dict[bytes, bytes]:
    """Return what a process hands in of so many runs."""
    tally = MetricsBuffer()
    for _ in range(done):
        tally.ended("done", queue=queue, task=task, lag_us=600, run_us=5_000)
    return encode_rows(tally.take())


def figures(apis: ShardApis, scope: bytes = ALL_JOBS, *, tasks: tuple[str, ...] = ()) -> Stats:
    """Return the last hour of a scope."""
    return apis.store.dashboard(0).snapshot(tasks=tasks).figures(scope)


def test_rows_of_several_processes_add_up_by_queue_and_task(apis: ShardApis) -> None:
    apis.add(queue="mail")
    reports = apis.store.process_reports(apis.shard)
    for done in (2, 3):
        reports.report(os.urandom(8), "worker", {}, rows(done=done))
    assert figures(apis).done == figures(apis, queue_dimension("mail")).done == 5
    remind = figures(apis, task_dimension("shop.remind"), tasks=("shop.remind",))
    assert (remind.done, sum(remind.lag), sum(remind.run)) == (5, 5, 5)
    assert figures(apis, task_dimension("shop.other"), tasks=("shop.other",)) == Stats()


def test_an_hour_is_kept_by_the_minute_and_no_longer(apis: ShardApis) -> None:
    reports, code = apis.store.process_reports(apis.shard), os.urandom(8)
    for minute in range(70):
        reports.report(code, "worker", {}, rows(done=minute))
        apis.clock.advance(MINUTE_US)
    history = apis.store.dashboard(0).snapshot().history[ALL_JOBS]
    apis.clock.advance(-MINUTE_US)
    series = history.series(apis.clock.now_us)
    assert [each.done for each in series] == list(range(10, 70))
    assert apis.client.hstrlen(apis.keys("metrics"), ALL_JOBS) == 61 * 4 * (1 + 49)


def test_names_beyond_the_bound_count_among_all_jobs_only(apis: ShardApis) -> None:
    reports, code = apis.store.process_reports(apis.shard), os.urandom(8)
    for batch in range(11):
        tally = MetricsBuffer()
        for number in range(100):
            tally.ended("done", queue="", task=f"task {batch} {number}")
        reports.report(code, "worker", {}, encode_rows(tally.take()))
    assert apis.client.hlen(apis.keys("metrics")) == 1_000
    assert figures(apis).done == 1_100
    reports.report(code, "worker", {}, rows(task="task 0 7"))
    assert figures(apis, task_dimension("task 0 7"), tasks=("task 0 7",)).done == 2


def test_names_that_nobody_counts_for_any_more_go(apis: ShardApis) -> None:
    reports, code = apis.store.process_reports(apis.shard), os.urandom(8)
    for name in "abcdef":
        reports.report(code, "worker", {}, rows(task=name, queue="mail"))
    apis.clock.advance(3 * HOUR)
    for _ in range(400):
        reports.report(code, "worker", {}, rows(task="alive", queue="mail"))
    assert set(apis.client.hkeys(apis.keys("metrics"))) == {ALL_JOBS, b"queue:mail", b"task:alive"}


def test_counts_stay_whole_numbers_that_fit(apis: ShardApis) -> None:
    reports, code = apis.store.process_reports(apis.shard), os.urandom(8)
    largest = b"\xff" * 4 * 49
    for _ in range(2):
        reports.report(code, "worker", {}, {ALL_JOBS: largest})
    assert figures(apis).done == 2**32 - 1


def test_a_ring_of_another_size_is_begun_anew(apis: ShardApis) -> None:
    apis.client.hset(apis.keys("metrics"), ALL_JOBS, b"written by hand")
    apis.client.hset(apis.keys("metrics"), b"task:odd", b"abcde")
    reports = apis.store.process_reports(apis.shard)
    for _ in range(200):
        reports.report(os.urandom(8), "worker", {}, rows())
    assert figures(apis).done == 200
    assert not apis.client.hexists(apis.keys("metrics"), b"task:odd")


def test_who_tells_of_itself_is_seen_until_it_leaves(apis: ShardApis) -> None:
    reports, worker, dispatcher = apis.store.process_reports(apis.shard), os.urandom(8), os.urandom(8)
    said: dict[str, Any] = {
        "name": "web1:4411",
        "slots": 4,
        "busy": {"mail": 2, "bulk": 1},
        "queues": ["mail"],
        "rss": 9,
    }
    reports.report(worker, "worker", {**said, "oldest_us": START - SECOND}, {})
    reports.report(dispatcher, "dispatcher", {"name": "web1:4410", "moved": 7, "lag_p95_us": 900}, {})
    first, second = apis.store.dashboard(0).snapshot().processes
    assert (first.kind, first.code, first.name, first.moved_hour, first.lag_p95_us) == (
        *("dispatcher", dispatcher, "web1:4410", 7, 900),
    )
    assert (second.kind, second.code, second.name, second.slots, second.busy) == ("worker", worker, "web1:4411", 4, 3)
    assert (second.queues, second.rss, second.oldest_us, second.seen_us) == (("mail",), 9, START - SECOND, START)
    assert second.serves("mail") and not second.serves("bulk")
    reports.deregister(worker, rows(done=2))
    assert [process.kind for process in apis.store.dashboard(0).snapshot().processes] == ["dispatcher"]
    assert figures(apis).done == 2
    reports.deregister(dispatcher, {})
    left = {apis.keys("metrics").encode(), apis.keys("queues").encode()}
    assert set(apis.client.keys("*")) <= left


def test_who_is_silent_is_lost_after_a_lease_and_forgotten_after_an_hour(apis: ShardApis) -> None:
    reports, code = apis.store.process_reports(apis.shard), os.urandom(8)
    for kind in ("worker", "dispatcher"):
        reports.report(code, kind, {"name": "x:1"}, {})
    lease_us = apis.config.worker.lease_us
    apis.clock.advance(20 * SECOND + lease_us)
    snapshot = apis.store.dashboard(0).snapshot()
    assert not any(process.is_lost(snapshot.now_us, lease_us=lease_us) for process in snapshot.processes)
    apis.clock.advance(1)
    snapshot = apis.store.dashboard(0).snapshot()
    assert [process.is_lost(snapshot.now_us, lease_us=lease_us) for process in snapshot.processes] == [True, True]
    apis.clock.advance(HOUR)
    apis.promote()
    assert apis.store.dashboard(0).snapshot().processes == []
    assert not apis.client.exists(apis.keys("process_reports"))


@pytest.mark.parametrize(
    "foreign", [b"", b"[]", b"{", b'{"queues":3,"busy":[1],"rss":"x","name":[],"slots":true}', b"\xff"]
)
def test_a_foreign_report_is_shown_with_what_can_be_read_of_it(apis: ShardApis, foreign: bytes) -> None:
    apis.client.zadd(apis.keys("workers"), {b"foreign!": START})
    apis.client.hset(apis.keys("process_reports"), b"foreign!", foreign)
    (process,) = apis.store.dashboard(0).snapshot().processes
    assert (process.kind, process.name, process.slots, process.busy, process.queues) == ("worker", "", 0, 0, ())


def test_a_worker_in_the_dispatchers_place_is_not_told_as_a_dispatcher(apis: ShardApis) -> None:
    apis.promote()
    assert apis.client.zcard(apis.keys("dispatchers")) == 1
    assert apis.store.dashboard(0).snapshot().processes == []
