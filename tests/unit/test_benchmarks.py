"""The benchmarks' page comes from a run's file alone, and a job that was lost or ran twice is no figure."""

import pytest

from benchmarks import ledger as ledgers
from benchmarks.charts import CHARTS, bars
from benchmarks.choice import Choice
from benchmarks.ledger import Ledger, Untrue
from benchmarks.page import PAGE, filled
from benchmarks.peers import work
from benchmarks.results import Results
from benchmarks.sizes import WHOLE


def record(scenario, system, configuration, **figures):
    reason = figures.pop("reason", None)
    return {
        "scenario": scenario,
        "system": system,
        "configuration": configuration,
        "figures": figures,
        "reason": reason,
    }


def system(name, *configurations, **cannot):
    return {
        "name": name,
        "configurations": dict.fromkeys(configurations, "as it comes"),
        "cannot": cannot,
        "waits": {},
        "versions": {name.lower(): "1.2.3"},
    }


@pytest.fixture
def results():
    machine = {"processor": "Abacus", "cores": 2, "system": "Linux", "python": "3.11", "server": "redis-server 7.0"}
    return Results(
        {
            "machine": machine | {"load_before": 0.1, "timer_ms": 0.1, "began": "2026-01-01 00:00"},
            "sizes": {"rounds": 3},
            "systems": {
                "delayq": system("django_delayq", "default"),
                "slow": system("Slow", "default", "tuned", bulk="no bulk call"),
                "fast": system("Fast", "default"),
            },
            "records": [
                *(record("drain", "delayq", "default", rate=rate) for rate in (40_000, 60_000, 50_000)),
                record("drain", "slow", "default", rate=400),
                record("drain", "slow", "tuned", rate=2_000),
                record("drain", "fast", "default", rate=10_000),
                record("lateness", "delayq", "default", p50_ms=0.5, p99_ms=1.5, early=0),
                record("lateness", "slow", "tuned", p50_ms=500, p99_ms=990, early=0),
                record("lateness", "fast", "default", reason="2 of 2,000 jobs never ran"),
            ],
        }
    )


def test_the_page_shows_medians_with_least_and_greatest_and_the_ratio_to_the_fastest_peer(results):
    page = filled(PAGE.read_text(), results)
    assert "| django_delayq | 50,000 (40,000–60,000) |" in page
    assert "(images/bench-run.svg)" in page and "(images/bench-bytes.svg)" not in page
    assert "| run, one worker process | 50,000 | 10,000 (Fast) | **5.00 ×** |" in page
    assert "| start − due, spread: p50 | 0.50 ms | 500 ms (Slow) | **1000.00 ×** |" in page


def test_the_page_gives_a_reason_where_there_is_no_figure(results):
    page = filled(PAGE.read_text(), results)
    for reason in ("2 of 2,000 jobs never ran", "no bulk call"):
        assert f"</sup> {reason}" in page


def test_each_peer_has_its_turn_as_it_comes_and_tuned(results):
    choice = Choice(systems=["delayq", "slow", "fast"])
    for scenario in ("enqueue", "trips", "lateness", "instant", "idle"):
        assert set(choice.turns(results, scenario)) >= {("slow", "default"), ("slow", "tuned")}
    assert "slow" not in dict(choice.turns(results, "bulk"))
    tuned = Choice(systems=["delayq", "slow", "fast"], tuned=True)
    assert [*tuned.turns(results, "trips")] == [("delayq", "default"), ("slow", "tuned"), ("fast", "default")]
    # The default was measured, and is too slow to be the best.
    assert ("slow", "default") not in [*choice.turns(results, "drain")]


def test_a_peer_whose_workers_fall_behind_says_so(results):
    results.records.append(record("waiting", "slow", "tuned", jobs=100_000, bytes=500))
    assert "did not run within a minute" in filled(PAGE.read_text(), results)


def test_a_page_made_anew_keeps_nothing_of_the_run_before(results):
    page = filled(PAGE.read_text(), results)
    assert filled(page, results) == page
    results.records.clear()
    assert "50,000" not in filled(page, results)


def test_the_page_tells_the_sizes_of_the_whole_run():
    page = PAGE.read_text()
    for told in (
        f"{WHOLE.jobs:,} no-op jobs wait",
        f"{WHOLE.spread:,} jobs due evenly over {WHOLE.spread_seconds:.0f} s",
        f"{WHOLE.instant:,} jobs due in the same millisecond",
        f"{WHOLE.trips} times",
    ):
        assert told in page


def test_a_chart_has_the_best_first_and_needs_two_systems(results):
    drawn = bars(results, "bench-run.svg")
    assert drawn.index("django_delayq") < drawn.index("Fast") < drawn.index("Slow")
    assert "2,000" in drawn and ">400<" not in drawn
    assert [name for name in CHARTS if bars(results, name)] == ["bench-run.svg", "bench-late.svg"]


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    made = Ledger(tmp_path / "ledger", 4)
    monkeypatch.setenv("BENCH_LEDGER", str(tmp_path / "ledger"))
    monkeypatch.setattr(work, "_counts", None)
    monkeypatch.setattr(ledgers, "AFTER", 0)
    return made


def test_each_job_that_ran_once_is_true(ledger):
    for number in range(4):
        work.note(number, *work.PAYLOAD)
    ledger.check(0, 4)
    assert ledger.done(0, 4) and sorted(ledger.starts_us(0, 4)) == ledger.starts_us(0, 4)


def test_a_lost_job_and_one_that_ran_twice_are_untrue(ledger):
    for number in (0, 1, 2, 1):
        work.noop(number, *work.PAYLOAD)
    with pytest.raises(Untrue, match="of 4 jobs 1 never ran and 1 ran more than once"):
        ledger.check(0, 4)
    with pytest.raises(Untrue, match="1 ran more than once"):
        ledger.check(0, 4, all_of_them=False)
    ledger.check(2, 2, all_of_them=False)


def test_jobs_that_stay_away_while_all_others_ran_are_lost_not_slow(ledger, monkeypatch):
    work.noop(0, *work.PAYLOAD)
    monkeypatch.setattr(ledgers, "STALLED", 0)
    with pytest.raises(Untrue, match="3 of 4 jobs had not run"):
        ledger.wait(0, 4, seconds=0.02)
