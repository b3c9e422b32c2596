"""Metrics: counts by queue and task, histograms, and the series that Redis keeps."""

import pytest

from django_delayq.metrics import (
    ALL_JOBS,
    BUCKETS,
    EDGES_US,
    HOUR_US,
    MINUTE_US,
    HourSeries,
    MetricsBuffer,
    MinuteSeries,
    Stats,
    bucket,
    encode_rows,
    hours_text,
    mean_run_us,
    queue_dimension,
    task_dimension,
)

NOW = 1_800_000_000_000_000
MINUTE = NOW // MINUTE_US


def taken(buffer: MetricsBuffer) -> dict[bytes, Stats]:
    """Return the totals of a buffer by dimension, as Redis gets them and pages read them."""
    rows = encode_rows(buffer.take())
    return {dimension: MinuteSeries(b"%d %s\n" % (MINUTE, row)).hour(NOW) for dimension, row in rows.items()}


@pytest.mark.parametrize(
    "us", [-5, 0, 1, 249, 250, 499, 500, 999, 1_000, 10**6, EDGES_US[-1] - 1, EDGES_US[-1], 10**15]
)
def test_a_duration_is_in_the_bucket_between_whose_edges_it_lies(us: int) -> None:
    number = bucket(us)
    assert 0 <= number < BUCKETS
    assert number == BUCKETS - 1 or us < EDGES_US[number]
    assert number == 0 or us >= EDGES_US[number - 1]


def test_each_attempt_counts_for_all_jobs_its_queue_and_its_task() -> None:
    buffer = MetricsBuffer()
    buffer.count_attempt("done", queue="mail", task="shop.remind", lag_us=300, run_us=2_000)
    buffer.count_attempt("retried", queue="mail", task="shop.pay", lag_us=100, run_us=10)
    buffer.count_attempt("dead", queue="bulk", task="shop.pay")
    stats = taken(buffer)
    assert set(stats) == {
        ALL_JOBS,
        queue_dimension("mail"),
        queue_dimension("bulk"),
        task_dimension("shop.remind"),
        task_dimension("shop.pay"),
    }
    every, mail, pay = (
        stats[dimension] for dimension in (ALL_JOBS, queue_dimension("mail"), task_dimension("shop.pay"))
    )
    assert (every.done, every.retried, every.dead) == (1, 1, 1)
    assert (mail.done, mail.failed, mail.finished) == (1, 1, 2)
    assert (pay.done, pay.retried, pay.dead, sum(pay.run), sum(pay.lag)) == (0, 1, 1, 1, 1)
    assert every.lag[bucket(300)] == 1 == every.run[bucket(2_000)]
    assert mail.success_share == 0.5


def test_taken_rows_are_gone_and_can_be_restored_beside_newer_ones() -> None:
    buffer = MetricsBuffer()
    buffer.count_attempt("done", queue="q", task="t")
    rows = buffer.take()
    assert buffer.take() == {}
    buffer.count_attempt("done", queue="q", task="t")
    buffer.restore(rows)
    assert taken(buffer)[ALL_JOBS].done == 2


def test_an_attempt_of_an_unreadable_job_counts_without_a_task() -> None:
    buffer = MetricsBuffer()
    buffer.count_attempt("dead", queue="", task="")
    assert set(taken(buffer)) == {ALL_JOBS}


def test_a_name_may_be_any_text() -> None:
    buffer = MetricsBuffer()
    buffer.count_attempt("done", queue="\ud800", task="é\0")
    assert taken(buffer)[queue_dimension("\ud800")].done == 1


def test_a_percentile_lies_in_the_bucket_it_falls_into() -> None:
    lag = [0] * BUCKETS
    lag[bucket(1_000)], lag[bucket(100_000)] = 90, 10
    stats = Stats(lag=tuple(lag))
    p50, p95 = stats.lag_us(0.5), stats.lag_us(0.95)
    assert p50 is not None and p95 is not None
    assert (bucket(p50), bucket(p95)) == (bucket(1_000), bucket(100_000))
    assert stats.run_us(0.5) is None


def test_a_percentile_in_the_open_bucket_is_its_lower_edge() -> None:
    lag = [0] * BUCKETS
    lag[-1] = 3
    assert Stats(lag=tuple(lag)).lag_us(0.5) == EDGES_US[-1]


def test_a_series_has_the_last_hour_by_the_minute() -> None:
    text = f"{MINUTE} done 1 retried 2\n{MINUTE - 59} done 10\n{MINUTE - 60} done 100\n"
    series = MinuteSeries(text.encode())
    assert (series.hour(NOW).done, series.hour(NOW).retried) == (11, 2)
    minutes = series.minutes(NOW)
    assert len(minutes) == 60
    assert (minutes[0].done, minutes[1], minutes[-1].done) == (10, Stats(), 1)
    assert series.hour(NOW + 120 * MINUTE_US) == Stats()


@pytest.mark.parametrize(
    "foreign",
    [
        b"",
        b"x",
        b"\xff" * 7,
        b"done 5\n",
        b"\n\n",
        b" \n",
        b"7",
        b"9" * 5_000,
        b"%d done %s\n" % (MINUTE, b"9" * 5_000),
    ],
)
def test_a_foreign_series_reads_as_empty(foreign: bytes) -> None:
    assert MinuteSeries(foreign).hour(NOW) == Stats()


@pytest.mark.parametrize("foreign", [b"done", b"done x", b"done -3", b"done 1.5", b"done 3x", b"\xff 7"])
def test_a_foreign_line_is_left_out(foreign: bytes) -> None:
    series = MinuteSeries(b"%d dead 2 %s\n%d done 4\n" % (MINUTE, foreign, MINUTE - 1))
    assert series.hour(NOW) == Stats(done=4)


def test_an_unknown_figure_is_left_out() -> None:
    assert MinuteSeries(b"%d new 8 done 4\n" % MINUTE).hour(NOW) == Stats(done=4)


def test_series_of_several_shards_are_joined_as_text() -> None:
    one, other = b"%d done 1\n" % MINUTE, b"%d done 2\n%d done 5\n" % (MINUTE, MINUTE - 1)
    series = MinuteSeries(one + other)
    assert series.hour(NOW).done == 8
    assert series.minutes(NOW)[-1].done == 3


def test_a_series_has_the_last_week_by_the_hour() -> None:
    hour = NOW // HOUR_US
    series = HourSeries(f"{hour} done 1\n{hour - 167} done 10\n{hour - 168} done 100\n{hour} done 2\n".encode())
    assert series.week(NOW).done == 13
    hours = series.hours(NOW)
    assert len(hours) == 168
    assert (hours[0].done, hours[1], hours[-1].done) == (10, Stats(), 3)


def test_the_newest_minute_is_added_to_its_hour() -> None:
    hour, minute = NOW // HOUR_US, NOW // MINUTE_US
    minutes = b"%d done 5\n%d done 70\n" % (minute, minute - 1)
    series = HourSeries(hours_text([b"done 3", None, b"done 2"], minutes, now_us=NOW))
    assert [each.done for each in series.hours(NOW)[-3:]] == [3, 0, 2 + 5]
    assert hours_text([None], b"", now_us=NOW) == b""
    assert hours_text([b"done 1\n7 done 9"], b"foreign", now_us=NOW) == b""
    assert HourSeries(hours_text([], b"%d done 5\n" % (60 * hour), now_us=NOW)).week(NOW).done == 5


def test_a_dispatcher_forgets_what_it_promoted_more_than_an_hour_ago() -> None:
    series = MinuteSeries()
    series.record_promotion(3, late_us=400, now_us=NOW)
    series.record_promotion(4, late_us=400, now_us=NOW + 60 * MINUTE_US)
    assert series.hour(NOW + 60 * MINUTE_US).promoted == 4
    series.record_promotion(1, late_us=400, now_us=NOW + 200 * MINUTE_US)
    assert series.hour(NOW + 200 * MINUTE_US).promoted == 1
    assert len(series._rows) == 1


@pytest.mark.parametrize(
    ("series", "mean_us"),
    [
        (b"", None),
        (b"30000000 done 3 lag1 3\n", None),
        (b"30000000 done 4 runsum 1000 run0 3 run9 1\n", 250),
        (b"30000000 runsum 100 run3 1\n29999941 runsum 500 run3 1\n", 300),
        # An hour ago, and in the future.
        (b"29999940 runsum 500 run3 1\n", None),
        (b"30000001 runsum 500 run3 1\n", None),
        # Of a release without sums: the middle of the bucket from 1 to 2 ms.
        (b"30000000 run3 2\n", 1_500),
        (b"30000000 run3 1\n29999999 runsum 500 run0 1\n", 1_000),
        # Edited manually.
        (b"x\n30000000 run99 1 run3 1\n30000000\n\xff run3 1", 750),
    ],
)
def test_the_mean_run_time_of_the_last_hour(series: bytes, mean_us: float | None) -> None:
    assert mean_run_us(series, now_us=NOW) == mean_us
