"""Report: the status of processes, and the metrics added up in Redis."""

import os
from dataclasses import replace
from typing import Any

import pytest

from django_delayq._version import __version__
from django_delayq.dispatcher.dispatcher import Dispatcher
from django_delayq.metrics import (
    ALL_JOBS,
    MINUTE_US,
    HourSeries,
    MetricsBuffer,
    Rows,
    Stats,
    queue_dimension,
    task_dimension,
)
from django_delayq.processes.reporter import claims_status
from django_delayq.store.process_reports import ProcessReports
from tests.admin.reports import tell_for_minutes
from tests.shard_apis import HOUR, SECOND, START, ShardApis


def rows(*, done: int = 1, queue: str = "mail", task: str = "shop.remind") -> Rows:
    """Return the rows of so many runs."""
    buffer = MetricsBuffer()
    for _ in range(done):
        buffer.count_attempt("done", queue=queue, task=task, lag_us=600, run_us=5_000)
    return buffer.take()


def hour(apis: ShardApis, dimension: bytes = ALL_JOBS, *, tasks: tuple[str, ...] = ()) -> Stats:
    """Return the last hour of a dimension."""
    return apis.store.dashboard(0).snapshot(tasks=tasks).hour(dimension)


def week(apis: ShardApis, dimension: bytes = ALL_JOBS) -> HourSeries:
    """Return the last week of a dimension."""
    return HourSeries(apis.store.dashboard(0).snapshot(dimension=dimension, week=True).week)


def test_rows_of_several_processes_add_up_by_queue_and_task(apis: ShardApis) -> None:
    apis.add(queue="mail")
    reports = ProcessReports(apis.shard)
    for done in (2, 3):
        reports.report(os.urandom(8), "worker", {}, rows(done=done))
    assert hour(apis).done == hour(apis, queue_dimension("mail")).done == 5
    remind = hour(apis, task_dimension("shop.remind"), tasks=("shop.remind",))
    assert (remind.done, sum(remind.lag), sum(remind.run)) == (5, 5, 5)
    assert hour(apis, task_dimension("shop.other"), tasks=("shop.other",)) == Stats()


def test_an_hour_is_kept_by_the_minute_and_no_longer(apis: ShardApis) -> None:
    reports, code = ProcessReports(apis.shard), os.urandom(8)
    for minute in range(70):
        reports.report(code, "worker", {}, rows(done=minute))
        apis.clock.advance(MINUTE_US)
    series = apis.store.dashboard(0).snapshot().series(ALL_JOBS)
    apis.clock.advance(-MINUTE_US)
    assert [each.done for each in series.minutes(apis.clock.now_us)] == list(range(10, 70))
    assert apis.client.hget(apis.keys("metrics"), ALL_JOBS).count(b"\n") == 60


def test_a_series_is_read_after_the_clock_was_set_back(apis: ShardApis) -> None:
    reports, code = ProcessReports(apis.shard), os.urandom(8)
    for minutes in (0, 1, -1, 0, 1):
        apis.clock.advance(minutes * MINUTE_US)
        reports.report(code, "worker", {}, rows())
    assert [
        each.done for each in apis.store.dashboard(0).snapshot().series(ALL_JOBS).minutes(START + MINUTE_US)[-2:]
    ] == [3, 2]


def test_names_beyond_the_bound_count_among_all_jobs_only(apis: ShardApis) -> None:
    reports, code = ProcessReports(apis.shard), os.urandom(8)
    for batch in range(11):
        buffer = MetricsBuffer()
        for number in range(100):
            buffer.count_attempt("done", queue="", task=f"task {batch} {number}")
        reports.report(code, "worker", {}, buffer.take())
    assert apis.client.hlen(apis.keys("metrics")) == 1_000
    assert hour(apis).done == 1_100
    reports.report(code, "worker", {}, rows(task="task 0 7"))
    assert hour(apis, task_dimension("task 0 7"), tasks=("task 0 7",)).done == 2


def test_a_week_is_kept_by_the_hour_and_no_longer(apis: ShardApis) -> None:
    reports, code = ProcessReports(apis.shard), os.urandom(8)
    hours = 200
    for number in range(hours):
        for _ in range(2):
            reports.report(code, "worker", {}, rows(done=number))
            apis.clock.advance(30 * MINUTE_US)
    apis.clock.advance(-30 * MINUTE_US)
    assert [each.done for each in week(apis).hours(apis.clock.now_us)] == [
        2 * number for number in range(hours - 168, hours)
    ]
    assert apis.client.hlen(apis.keys("metrics_by_hour")) <= 3 * 169


def test_an_hour_has_every_minute_once(apis: ShardApis) -> None:
    for runs in tell_for_minutes(apis):
        assert week(apis).week(apis.clock.now_us).done == runs
    assert week(apis).week(apis.clock.now_us) == hour(apis)


def test_an_hour_survives_when_an_unused_series_is_removed(apis: ShardApis) -> None:
    reports, code, mail = ProcessReports(apis.shard), os.urandom(8), queue_dimension("mail")
    reports.report(code, "worker", {}, rows(done=7, queue="mail"))
    apis.clock.advance(3 * HOUR)
    for _ in range(200):
        reports.report(code, "worker", {}, rows(queue="other"))
    assert apis.client.hget(apis.keys("metrics"), mail) is None
    assert week(apis, mail).week(apis.clock.now_us).done == 7


def test_hours_beyond_a_week_are_removed(apis: ShardApis) -> None:
    reports, code = ProcessReports(apis.shard), os.urandom(8)
    for name in "abcdef":
        for _ in range(2):
            reports.report(code, "worker", {}, rows(task=name))
            apis.clock.advance(MINUTE_US)
    apis.client.hset(apis.keys("metrics_by_hour"), mapping={b"written by hand": b"x", b"9" * 400: b"x"})
    apis.clock.advance(168 * HOUR)
    for _ in range(100):
        reports.report(code, "worker", {}, rows(task="alive"))
    fields = apis.client.hkeys(apis.keys("metrics_by_hour"))
    assert all(int(field.split()[0]) >= (apis.clock.now_us // HOUR) - 167 for field in fields)


def test_the_rows_of_hours_are_bounded(apis: ShardApis) -> None:
    hour_now, key = apis.clock.now_us // HOUR, apis.keys("metrics_by_hour")
    for start in range(0, 60_000, 10_000):
        apis.client.hset(key, mapping={f"{hour_now} task:{start + number}": "done 1" for number in range(10_000)})
    reports, code = ProcessReports(apis.shard), os.urandom(8)
    for _ in range(3):
        reports.report(code, "worker", {}, rows(task="one too many"))
        reports.report(code, "worker", {}, rows(task="7"))
        apis.clock.advance(MINUTE_US)
    assert apis.client.hlen(key) == 60_000
    assert b"done 3" in apis.client.hget(key, f"{hour_now} task:7")


def test_foreign_hours_read_as_empty(apis: ShardApis) -> None:
    hour_now, key = apis.clock.now_us // HOUR, apis.keys("metrics_by_hour")
    for number, foreign in enumerate((b"x", b"\xff", b"", b"done 3\n%d done 5" % hour_now, b"done -3")):
        apis.client.hset(key, b"%d all" % (hour_now - number), foreign)
    assert week(apis).week(apis.clock.now_us) == Stats()
    ProcessReports(apis.shard).report(os.urandom(8), "worker", {}, rows(done=2))
    apis.clock.advance(MINUTE_US)
    ProcessReports(apis.shard).report(os.urandom(8), "worker", {}, rows(done=2))
    assert week(apis).week(apis.clock.now_us).done == 4


def test_a_release_is_known_from_its_first_report(redis_url: str, apis: ShardApis) -> None:
    first_us = apis.clock.now_us
    for name in ("1.0", "1.1", "1.0"):
        release = ShardApis(redis_url, clock=apis.clock, RELEASE=name)
        ProcessReports(release.shard).report(os.urandom(8), "dispatcher", {}, {})
        release.close()
        apis.clock.advance(SECOND)
    assert apis.store.snapshot().releases == {"1.0": first_us, "1.1": first_us + SECOND}
    ProcessReports(apis.shard).report(os.urandom(8), "worker", {}, {})
    assert apis.store.snapshot().releases[__version__] == first_us + 3 * SECOND


def test_the_newest_releases_are_kept(redis_url: str, apis: ShardApis) -> None:
    apis.client.hset(apis.keys("releases"), "written by hand", "x")
    for number in range(53):
        release = ShardApis(redis_url, clock=apis.clock, RELEASE=f"r{number}")
        ProcessReports(release.shard).report(os.urandom(8), "worker", {}, {})
        release.close()
        apis.clock.advance(SECOND)
    assert set(apis.store.snapshot().releases) == {f"r{number}" for number in range(3, 53)}
    assert apis.client.hlen(apis.keys("releases")) == 50


def test_unused_names_are_removed(apis: ShardApis) -> None:
    reports, code = ProcessReports(apis.shard), os.urandom(8)
    for name in "abcdef":
        reports.report(code, "worker", {}, rows(task=name, queue="mail"))
    apis.clock.advance(3 * HOUR)
    for _ in range(400):
        reports.report(code, "worker", {}, rows(task="alive", queue="mail"))
    assert set(apis.client.hkeys(apis.keys("metrics"))) == {ALL_JOBS, b"queue:mail", b"task:alive"}


def test_large_counts_add_up_exactly(apis: ShardApis) -> None:
    reports, code = ProcessReports(apis.shard), os.urandom(8)
    [(key, row)] = rows().items()
    for _ in range(2):
        reports.report(code, "worker", {}, {key: [count * (4 * 10**14 + 1) for count in row]})
    assert hour(apis).done == sum(hour(apis).run) == 8 * 10**14 + 2


def test_a_foreign_series_is_replaced(apis: ShardApis) -> None:
    apis.client.hset(apis.keys("metrics"), ALL_JOBS, b"written by hand")
    apis.client.hset(apis.keys("metrics"), b"task:odd", b"abcde")
    reports = ProcessReports(apis.shard)
    for _ in range(200):
        reports.report(os.urandom(8), "worker", {}, rows())
    assert hour(apis).done == 200
    assert not apis.client.hexists(apis.keys("metrics"), b"task:odd")


def test_a_process_is_shown_from_its_first_report_until_it_deregisters(apis: ShardApis) -> None:
    reports, worker, dispatcher = ProcessReports(apis.shard), os.urandom(8), os.urandom(8)
    status: dict[str, Any] = {
        "name": "web1:4411",
        "slots": 4,
        "running": {"mail": 2, "bulk": 1},
        "queues": ["mail"],
        "rss": 9,
    }
    reports.report(worker, "worker", {**status, "oldest_us": START - SECOND}, {})
    reports.report(dispatcher, "dispatcher", {"name": "web1:4410", "promoted": 7, "lag_p95_us": 900}, {})
    first, second = apis.store.dashboard(0).snapshot().processes
    assert (first.kind, first.code, first.name, first.promoted, first.lag_p95_us) == (
        *("dispatcher", dispatcher, "web1:4410", 7, 900),
    )
    assert (second.kind, second.code, second.name, second.slots, second.busy) == ("worker", worker, "web1:4411", 4, 3)
    assert (second.queues, second.rss, second.oldest_us, second.seen_us) == (("mail",), 9, START - SECOND, START)
    assert second.serves("mail") and not second.serves("bulk")
    reports.deregister(worker, rows(done=2))
    assert [process.kind for process in apis.store.dashboard(0).snapshot().processes] == ["dispatcher"]
    assert hour(apis).done == 2
    reports.deregister(dispatcher, {})
    left = {apis.keys(noun).encode() for noun in ("metrics", "totals", "queues", "releases")}
    assert set(apis.client.keys("*")) <= left


@pytest.mark.parametrize(
    ("items", "served"),
    [
        (["mail*", "-mail.slow"], {"mail", "mail.new"}),
        (["-bulk", "-mail*"], {"slow"}),
        # Of a later release, or edited manually: it may serve any queue.
        (["50%"], {"mail", "mail.new", "mail.slow", "bulk", "slow"}),
    ],
)
def test_a_worker_of_a_filter_serves_what_the_filter_matches(
    items: list[str], served: set[str], apis: ShardApis
) -> None:
    status = claims_status([], queues=items, filtered=True)
    ProcessReports(apis.shard).report(os.urandom(8), "worker", status, {})
    [process] = apis.store.dashboard(0).snapshot().processes
    assert process.queues == tuple(items)
    queues = ("mail", "mail.new", "mail.slow", "bulk", "slow")
    assert {queue for queue in queues if process.serves(queue)} == served
    assert not replace(process, quiet=True).serves("mail")
    # An older release does not know filters, and must not take any queue for unserved.
    assert all(replace(process, filtered=False).serves(queue) for queue in queues)


@pytest.mark.parametrize(
    ("weights", "shown"),
    [([6, 1], (6, 1)), ([6], ()), ([6, "1"], ()), ([6, True], ()), ([6, 1, 1], ()), ({"mail": 6}, ())],
)
def test_a_report_has_a_weight_for_each_queue_or_none(weights: Any, shown: tuple[int, ...], apis: ShardApis) -> None:
    status = {**claims_status([], queues=["mail", "bulk"], weights=[6, 1]), "weights": weights}
    ProcessReports(apis.shard).report(os.urandom(8), "worker", status, {})
    [process] = apis.store.dashboard(0).snapshot().processes
    assert (process.queues, process.weights) == (("mail", "bulk"), shown)
    assert process.serves("mail") and not process.serves("other")


def test_more_weighted_queues_than_a_report_names_have_a_weight_each(apis: ShardApis) -> None:
    names = [f"queue {number}" for number in range(60)]
    ProcessReports(apis.shard).report(
        os.urandom(8), "worker", claims_status([], queues=names, weights=list(range(1, 61))), {}
    )
    [process] = apis.store.dashboard(0).snapshot().processes
    assert (process.queues, process.weights) == (tuple(names[:50]), tuple(range(1, 51)))
    assert process.serves("queue 59")


def test_a_worker_of_names_like_patterns_serves_these_names(apis: ShardApis) -> None:
    ProcessReports(apis.shard).report(os.urandom(8), "worker", claims_status([], queues=["mail*", "-x"]), {})
    [process] = apis.store.dashboard(0).snapshot().processes
    assert process.serves("mail*") and process.serves("-x") and not process.serves("mail.new")


def test_a_filter_with_too_many_items_for_a_report_counts_as_all_queues(apis: ShardApis) -> None:
    items = [f"q{number:02}*" for number in range(51)]
    status = claims_status([], queues=items, filtered=True)
    ProcessReports(apis.shard).report(os.urandom(8), "worker", status, {})
    [process] = apis.store.dashboard(0).snapshot().processes
    assert len(process.queues) == 50 and process.serves("q50.new")


def test_a_silent_process_is_lost_after_a_lease_and_forgotten_after_an_hour(apis: ShardApis) -> None:
    reports, code = ProcessReports(apis.shard), os.urandom(8)
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
    "foreign", [b"", b"[]", b"{", b'{"queues":3,"running":[1],"rss":"x","name":[],"slots":true}', b"\xff"]
)
def test_a_foreign_report_is_shown_with_what_can_be_read_of_it(apis: ShardApis, foreign: bytes) -> None:
    apis.client.zadd(apis.keys("workers"), {b"foreign!": START})
    apis.client.hset(apis.keys("process_reports"), b"foreign!", foreign)
    (process,) = apis.store.dashboard(0).snapshot().processes
    assert (process.kind, process.name, process.slots, process.busy, process.queues) == ("worker", "", 0, 0, ())


def test_a_dispatcher_reports_what_it_promoted(apis: ShardApis) -> None:
    for _ in range(3):
        apis.add(delay=SECOND)
    apis.clock.advance(SECOND)
    dispatcher = Dispatcher(apis.shard, apis.promotion)
    dispatcher.promote()
    ProcessReports(apis.shard).report(dispatcher.worker_id, "dispatcher", dispatcher.status(), {})
    (process,) = apis.store.dashboard(0).snapshot().processes
    assert process.promoted == 3
    assert process.lag_p95_us is not None


def test_a_fallback_dispatcher_is_not_shown_as_a_dispatcher(apis: ShardApis) -> None:
    apis.promote()
    assert apis.client.zcard(apis.keys("dispatchers")) == 1
    assert apis.store.dashboard(0).snapshot().processes == []
