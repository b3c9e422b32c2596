"""Totals: they have what every report and every enqueue brought, once, and never go back."""

import os
from typing import Any

import pytest

from django_delayq.metrics import ALL_JOBS, MINUTE_US, MetricsBuffer, Rows, Stats, queue_dimension, task_dimension
from django_delayq.store.process_reports import ProcessReports
from django_delayq.store.queries.totals import Totals, TotalsQueries, combined_totals
from tests.admin.reports import tell_for_minutes
from tests.shard_apis import HOUR, ShardApis

TASK = "tests.sample_app.tasks.noop"


def rows(*, done: int = 1, queue: str = "mail", task: str = "shop.remind") -> Rows:
    """Return the rows of so many runs."""
    buffer = MetricsBuffer()
    for _ in range(done):
        buffer.count_attempt("done", queue=queue, task=task, lag_us=600, run_us=5_000)
    return buffer.take()


def totals(*shards: ShardApis) -> Totals:
    """Read the totals of these shards."""
    return combined_totals(apis.shard.read(TotalsQueries(apis.shard).read_totals()) for apis in shards)


def test_totals_have_every_minute_once(apis: ShardApis) -> None:
    for runs in tell_for_minutes(apis):
        found = totals(apis).stats
        assert found[ALL_JOBS].done == found[queue_dimension("mail")].done == runs
    stats = found[task_dimension("shop.remind")]
    assert (sum(stats.lag), sum(stats.run), stats.lag_sum_us, stats.run_sum_us) == (
        runs,
        runs,
        600 * runs,
        5_000 * runs,
    )


def test_totals_stay_when_a_series_is_removed(apis: ShardApis) -> None:
    reports, code, mail = ProcessReports(apis.shard), os.urandom(8), queue_dimension("mail")
    reports.report(code, "worker", {}, rows(done=7, queue="mail"))
    apis.clock.advance(3 * HOUR)
    for _ in range(200):
        reports.report(code, "worker", {}, rows(queue="other"))
    assert apis.client.hget(apis.keys("metrics"), mail) is None
    assert totals(apis).stats[mail].done == 7
    reports.report(code, "worker", {}, rows(done=2, queue="mail"))
    assert totals(apis).stats[mail].done == 9


def test_a_thousand_dimensions_are_read_whole(apis: ShardApis) -> None:
    reports, code = ProcessReports(apis.shard), os.urandom(8)
    for step in range(2):
        for batch in range(9):
            buffer = MetricsBuffer()
            for number in range(100):
                buffer.count_attempt("done", queue="", task=f"task {batch} {number}")
            reports.report(code, "worker", {}, buffer.take())
        found = totals(apis).stats
        assert {
            found[task_dimension(f"task {batch} {number}")].done for batch in range(9) for number in range(100)
        } == {step + 1}
        apis.clock.advance(MINUTE_US)


def test_without_room_a_dimension_counts_nowhere_and_does_not_go_back(apis: ShardApis) -> None:
    reports, code = ProcessReports(apis.shard), os.urandom(8)
    live = {task_dimension(f"task {number}"): b"1 done 1\n" for number in range(998)}
    apis.client.hset(apis.keys("metrics"), mapping=live)  # type: ignore[arg-type]
    apis.client.hset(apis.keys("totals"), mapping=dict.fromkeys([*live, b"x", b"y"], "1 done 1"))  # type: ignore[arg-type]
    # Those without a series make room for two others.
    seen: list[int] = []
    for _ in range(6):
        reports.report(code, "worker", {}, rows())
        seen.append(totals(apis).stats.get(queue_dimension("mail"), Stats()).done)
        apis.clock.advance(MINUTE_US)
    assert seen == sorted(seen)
    assert apis.client.hlen(apis.keys("totals")) <= 1_000


def test_a_minute_that_ends_between_two_calls_goes_back_nowhere(apis: ShardApis) -> None:
    reports, code = ProcessReports(apis.shard), os.urandom(8)
    for batch in range(4):
        buffer = MetricsBuffer()
        for number in range(100):
            buffer.count_attempt("done", queue="", task=f"task {batch} {number}")
        reports.report(code, "worker", {}, buffer.take())
    last = rows(task="task 3 99")
    for _ in range(9):
        reports.report(code, "worker", {}, last)
    reading = TotalsQueries(apis.shard).read_totals()
    replies = [apis.shard.read_all(next(reading))]
    apis.clock.advance(MINUTE_US)
    reports.report(code, "worker", {}, last)
    with pytest.raises(StopIteration) as end:
        while True:
            replies.append(apis.shard.read_all(reading.send(replies[-1])))
    assert len(replies) == 2
    assert combined_totals([end.value.value]).stats[task_dimension("task 3 99")].done == 11


def test_what_a_release_without_totals_counts_is_added_later(apis: ShardApis) -> None:
    reports, code, mail = ProcessReports(apis.shard), os.urandom(8), queue_dimension("mail")
    expected = 0
    for number in range(6):
        reports.report(code, "worker", {}, rows(done=5))
        expected += 5
        assert totals(apis).stats[mail].done == expected
        apis.clock.advance(MINUTE_US)
        if number % 2:
            # Another process begins the next minute, and does not end the one before.
            minute = apis.clock.now_us // MINUTE_US
            series = apis.client.hget(apis.keys("metrics"), mail)
            apis.client.hset(apis.keys("metrics"), mail, b"%d done 7\n" % minute + series)
            expected += 7
            apis.clock.advance(MINUTE_US)
        assert totals(apis).stats[mail].done == expected


def test_names_of_tasks_that_never_ran_make_room(apis: ShardApis) -> None:
    reports, key = ProcessReports(apis.shard), apis.keys("enqueued")
    apis.add(queue="mail")
    reports.report(os.urandom(8), "worker", {}, rows(task=TASK))
    apis.client.hset(key, mapping={b"\x01q\x00\x04%04d" % number: 2 for number in range(2_010)})
    for _ in range(20):
        reports.report(os.urandom(8), "worker", {}, {})
    found = totals(apis).enqueued
    assert apis.client.hlen(key) <= 2_000
    assert found[task_dimension(TASK)] == 1
    assert sum(number for name, number in found.items() if name.startswith(b"task:")) == 2 * 2_010 + 1


@pytest.mark.parametrize("row", [b"", b"x", b"done", b"done x", b"done -1", b"done 1 2 3", b"\xff", b"later 5 done 3"])
def test_a_total_that_was_edited_counts_as_far_as_it_can_be_read(row: bytes, apis: ShardApis) -> None:
    reports, code = ProcessReports(apis.shard), os.urandom(8)
    apis.client.hset(apis.keys("totals"), ALL_JOBS, row)  # type: ignore[arg-type]
    for _ in range(2):
        reports.report(code, "worker", {}, rows())
        assert totals(apis).stats[ALL_JOBS].done >= 1
        apis.clock.advance(MINUTE_US)


@pytest.mark.parametrize(
    "options", [{}, {"queue": "mail"}, {"queue": "é" * 100}, {"delay": HOUR}, {"delay": HOUR, "queue": "mail"}]
)
def test_each_stored_job_counts_once(options: dict[str, Any], apis: ShardApis) -> None:
    queue = options.get("queue", "default")
    draft = apis.draft(**options)
    for _ in range(2):
        # A repeated call finds that the job is stored.
        apis.enqueue(draft)
    assert totals(apis).enqueued == {queue_dimension(queue): 1, task_dimension(TASK): 1}
    apis.enqueue(*(apis.draft(**options) for _ in range(5)))
    assert totals(apis).enqueued == {queue_dimension(queue): 6, task_dimension(TASK): 6}


@pytest.mark.parametrize("unique", ["keep", "replace"])
def test_a_job_that_is_refused_or_replaces_another_does_not_count(unique: str, apis: ShardApis) -> None:
    for _ in range(3):
        apis.add(key="order 4711", unique=unique, delay=HOUR)
    assert totals(apis).enqueued == {queue_dimension("default"): 1, task_dimension(TASK): 1}


def test_a_retried_job_was_enqueued_once(apis: ShardApis) -> None:
    raw_id = apis.add_dead()
    died_us = int(apis.client.zscore(apis.keys("dead_letters"), raw_id) or 0)
    assert apis.operations.requeue(raw_id, died_us=died_us)
    assert totals(apis).enqueued[task_dimension(TASK)] == 1


def test_pairs_beyond_the_bound_count_without_names(apis: ShardApis) -> None:
    apis.client.hset(apis.keys("enqueued"), mapping={f"{number}": 1 for number in range(2_000)})  # type: ignore[arg-type]
    apis.add(queue="one more")
    apis.add(queue="one more")
    assert apis.client.hget(apis.keys("enqueued"), b"") == b"2"
    assert apis.client.hlen(apis.keys("enqueued")) == 2_001


def test_a_field_that_is_no_number_does_not_keep_jobs_from_being_stored(apis: ShardApis) -> None:
    fields = {b"": b"x"} | {b"%d" % number: b"x" for number in range(2_000)}
    apis.client.hset(apis.keys("enqueued"), mapping=fields)  # type: ignore[arg-type]
    raw_ids = [apis.add(queue="more"), *(apis.add(queue="more", key=str(number)) for number in range(2))]
    assert {*map(str, map(apis.where, raw_ids))} == {"['ready:more']"}
    assert totals(apis).enqueued.get(task_dimension(TASK)) is None


def test_a_key_of_another_type_does_not_keep_jobs_from_being_stored(apis: ShardApis) -> None:
    apis.client.set(apis.keys("enqueued"), "x")
    raw_id = apis.add()
    assert apis.where(raw_id) == ["ready:default"]
