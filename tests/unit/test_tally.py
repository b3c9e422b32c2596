"""Tally: rows added up by queue and task, histograms, and what is read back from a ring."""

import struct

import pytest

from django_delayq.metrics import (
    ALL,
    BUCKETS,
    EDGES_US,
    EMPTY,
    MINUTE_US,
    MINUTES,
    NO_HISTORY,
    WIDTH,
    Figures,
    History,
    LastHour,
    Tally,
    bucket,
    packed,
    queue_scope,
    task_scope,
)

NOW = 1_800_000_000_000_000


def figures(row: bytes) -> Figures:
    """Return a packed row as figures."""
    return Figures.of(struct.unpack(f">{WIDTH}I", row))


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
    tally = Tally()
    tally.ended("done", queue="mail", task="shop.remind", lag_us=300, run_us=2_000)
    tally.ended("retried", queue="mail", task="shop.pay", lag_us=100, run_us=10)
    tally.ended("dead", queue="bulk", task="shop.pay")
    tally.moved(7)
    rows = packed(tally.take())
    assert set(rows) == {
        ALL,
        queue_scope("mail"),
        queue_scope("bulk"),
        task_scope("shop.remind"),
        task_scope("shop.pay"),
    }
    whole, mail, pay = figures(rows[ALL]), figures(rows[queue_scope("mail")]), figures(rows[task_scope("shop.pay")])
    assert (whole.done, whole.retried, whole.dead, whole.moved) == (1, 1, 1, 7)
    assert (mail.done, mail.failed, mail.finished, mail.moved) == (1, 1, 2, 0)
    assert (pay.done, pay.retried, pay.dead, sum(pay.run), sum(pay.lag)) == (0, 1, 1, 1, 1)
    assert whole.lag[bucket(300)] == 1 == whole.run[bucket(2_000)]
    assert mail.success_share == 0.5


def test_what_was_taken_is_gone_and_can_be_put_back_beside_what_came_since() -> None:
    tally = Tally()
    tally.ended("done", queue="q", task="t")
    taken = tally.take()
    assert tally.take() == {}
    tally.ended("done", queue="q", task="t")
    tally.put_back(taken)
    assert figures(packed(tally.take())[ALL]).done == 2


def test_names_of_any_text_are_scopes() -> None:
    tally = Tally()
    tally.ended("done", queue="\ud800", task="é\0")
    assert queue_scope("\ud800") in packed(tally.take())


def test_a_percentile_lies_in_the_bucket_it_falls_into() -> None:
    lag = [0] * BUCKETS
    lag[bucket(1_000)], lag[bucket(100_000)] = 90, 10
    told = Figures(lag=tuple(lag))
    p50, p95 = told.lag_us(0.5), told.lag_us(0.95)
    assert p50 is not None and p95 is not None
    assert (bucket(p50), bucket(p95)) == (bucket(1_000), bucket(100_000))
    assert told.run_us(0.5) is None


def test_of_the_open_bucket_its_lower_edge_is_told() -> None:
    lag = [0] * BUCKETS
    lag[-1] = 3
    assert Figures(lag=tuple(lag)).lag_us(0.5) == EDGES_US[-1]


def test_a_ring_is_read_by_the_minute_and_adds_up_to_the_last_hour() -> None:
    minute = NOW // MINUTE_US
    history = History.unpack(ring({minute: [1, 2], minute - 59: [10], minute - 60: [100]}))
    assert (history.last(NOW).done, history.last(NOW).retried) == (11, 2)
    assert history.last(NOW, 1).done == 1
    series = history.series(NOW)
    assert len(series) == 60
    assert (series[0].done, series[1], series[-1].done) == (10, EMPTY, 1)
    assert history.last(NOW + 120 * MINUTE_US) == EMPTY


@pytest.mark.parametrize("foreign", [None, b"", b"x", b"\xff" * 7, bytes(MINUTES * 4 * (WIDTH + 1) - 1)])
def test_a_foreign_ring_reads_as_empty(foreign: bytes | None) -> None:
    assert History.unpack(foreign) == NO_HISTORY
    assert NO_HISTORY.last(NOW) == EMPTY


def test_histories_of_several_shards_are_added() -> None:
    minute = NOW // MINUTE_US
    one, other = History.unpack(ring({minute: [1]})), History.unpack(ring({minute: [2], minute - 1: [5]}))
    assert History.added([one, other]).last(NOW).done == 8
    assert History.added([one]) is one


def test_a_dispatcher_forgets_what_it_promoted_more_than_an_hour_ago() -> None:
    hour = LastHour()
    hour.promoted(3, late_us=400, now_us=NOW)
    hour.promoted(4, late_us=400, now_us=NOW + 60 * MINUTE_US)
    assert hour.figures(NOW + 60 * MINUTE_US).moved == 4
    hour.promoted(1, late_us=400, now_us=NOW + 200 * MINUTE_US)
    assert hour.figures(NOW + 200 * MINUTE_US).moved == 1
    assert len(hour._rows) == 1
