"""Tally: rows added up by queue and task, histograms, and what is read back from a ring."""

import struct

import pytest

from django_delayq.metrics import (
    ALL_JOBS,
    BUCKETS,
    EDGES_US,
    EMPTY,
    MINUTE_US,
    MINUTES,
    NO_HISTORY,
    WIDTH,
    MetricsBuffer,
    MinuteSeries,
    PromotionStats,
    Stats,
    bucket,
    encode_rows,
    queue_dimension,
    task_dimension,
)

NOW = 1_800_000_000_000_000


def figures(row: bytes) -> Stats:
    """Return a packed row as figures."""
    return Stats.of(struct.unpack(f">{WIDTH}I", row))


def ring(rows: dict[int, list[int]]) -> bytes:
    """Return a ring as the script keeps it, of minute -> first numbers of its row."""
    slots = [[0] * (1 + WIDTH) for _ in range(MINUTES)]
    for minute, row in rows.items():
        slots[minute % MINUTES] = [minute, *row, *[0] * (WIDTH - len(row))]
    return b"".join(struct.pack(f">{1 + WIDTH}I", *slot) for slot in slots)


@pytest.mark.parametrize(
    "us", [-5, 0, 1, 249, 250, 499, 500, 999, 1_000, 10**6, EDGES_US[-1] - 1, EDGES_US[-1], 10**15]
)
def test_a_time_is_in_the_bucket_whose_edges_hold_it(us: int) -> None:
    number = bucket(us)
    assert 0 <= number < BUCKETS
    assert number == BUCKETS - 1 or us < EDGES_US[number]
    assert number == 0 or us >= EDGES_US[number - 1]


def test_each_attempt_counts_for_all_jobs_its_queue_and_its_task() -> None:
    tally = MetricsBuffer()
    tally.ended("done", queue="mail", task="shop.remind", lag_us=300, run_us=2_000)
    tally.ended("retried", queue="mail", task="shop.pay", lag_us=100, run_us=10)
    tally.ended("dead", queue="bulk", task="shop.pay")
    tally.moved(7)
    rows = encode_rows(tally.take())
    assert set(rows) == {
        ALL_JOBS,
        queue_dimension("mail"),
        queue_dimension("bulk"),
        task_dimension("shop.remind"),
        task_dimension("shop.pay"),
    }
    whole, mail, pay = (
        figures(rows[ALL_JOBS]),
        figures(rows[queue_dimension("mail")]),
        figures(rows[task_dimension("shop.pay")]),
    )
    assert (whole.done, whole.retried, whole.dead, whole.moved) == (1, 1, 1, 7)
    assert (mail.done, mail.failed, mail.finished, mail.moved) == (1, 1, 2, 0)
    assert (pay.done, pay.retried, pay.dead, sum(pay.run), sum(pay.lag)) == (0, 1, 1, 1, 1)
    assert whole.lag[bucket(300)] == 1 == whole.run[bucket(2_000)]
    assert mail.success_share == 0.5


def test_what_was_taken_is_gone_and_can_be_put_back_beside_what_came_since() -> None:
    tally = MetricsBuffer()
    tally.ended("done", queue="q", task="t")
    taken = tally.take()
    assert tally.take() == {}
    tally.ended("done", queue="q", task="t")
    tally.restore(taken)
    assert figures(encode_rows(tally.take())[ALL_JOBS]).done == 2


def test_names_of_any_text_are_scopes() -> None:
    tally = MetricsBuffer()
    tally.ended("done", queue="\ud800", task="é\0")
    assert queue_dimension("\ud800") in encode_rows(tally.take())


def test_a_percentile_lies_in_the_bucket_it_falls_into() -> None:
    lag = [0] * BUCKETS
    lag[bucket(1_000)], lag[bucket(100_000)] = 90, 10
    told = Stats(lag=tuple(lag))
    p50, p95 = told.lag_us(0.5), told.lag_us(0.95)
    assert p50 is not None and p95 is not None
    assert (bucket(p50), bucket(p95)) == (bucket(1_000), bucket(100_000))
    assert told.run_us(0.5) is None


def test_of_the_open_bucket_its_lower_edge_is_told() -> None:
    lag = [0] * BUCKETS
    lag[-1] = 3
    assert Stats(lag=tuple(lag)).lag_us(0.5) == EDGES_US[-1]


def test_a_ring_is_read_by_the_minute_and_adds_up_to_the_last_hour() -> None:
    minute = NOW // MINUTE_US
    history = MinuteSeries.unpack(ring({minute: [1, 2], minute - 59: [10], minute - 60: [100]}))
    assert (history.last(NOW).done, history.last(NOW).retried) == (11, 2)
    assert history.last(NOW, 1).done == 1
    series = history.series(NOW)
    assert len(series) == 60
    assert (series[0].done, series[1], series[-1].done) == (10, EMPTY, 1)
    assert history.last(NOW + 120 * MINUTE_US) == EMPTY


@pytest.mark.parametrize("foreign", [None, b"", b"x", b"\xff" * 7, bytes(MINUTES * 4 * (WIDTH + 1) - 1)])
def test_a_foreign_ring_reads_as_empty(foreign: bytes | None) -> None:
    assert MinuteSeries.unpack(foreign) == NO_HISTORY
    assert NO_HISTORY.last(NOW) == EMPTY


def test_histories_of_several_shards_are_added() -> None:
    minute = NOW // MINUTE_US
    one, other = MinuteSeries.unpack(ring({minute: [1]})), MinuteSeries.unpack(ring({minute: [2], minute - 1: [5]}))
    assert MinuteSeries.added([one, other]).last(NOW).done == 8
    assert MinuteSeries.added([one]) is one


def test_a_dispatcher_forgets_what_it_promoted_more_than_an_hour_ago() -> None:
    hour = PromotionStats()
    hour.promoted(3, late_us=400, now_us=NOW)
    hour.promoted(4, late_us=400, now_us=NOW + 60 * MINUTE_US)
    assert hour.figures(NOW + 60 * MINUTE_US).moved == 4
    hour.promoted(1, late_us=400, now_us=NOW + 200 * MINUTE_US)
    assert hour.figures(NOW + 200 * MINUTE_US).moved == 1
    assert len(hour._rows) == 1
