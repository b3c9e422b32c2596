"""The benchmarks: the page comes from the results file alone, and lost or duplicate runs have no figure."""

import re

import pytest

from benchmarks import run_record
from benchmarks.peer_runtime import work
from benchmarks.report.charts import CHARTS, bars
from benchmarks.report.page import PAGE, fill_in, marked_part
from benchmarks.results import Results
from benchmarks.run_record import InvalidRun, RunRecord
from benchmarks.selection import Selection
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
        "unsupported": cannot,
        "wait_configurations": {},
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


def test_the_page_shows_medians_with_their_range_and_the_ratio_to_the_best_peer(results):
    page = fill_in(PAGE.read_text(), results)
    assert "| django_delayq | 50,000 (40,000–60,000) |" in page
    assert "(../images/bench-run.svg)" in page and "(../images/bench-bytes.svg)" not in page
    assert "| run, one worker process | 50,000 | 10,000 (Fast) | **5.00 ×** |" in page
    assert "| start − due, spread: p50 | 0.50 ms | 500 ms (Slow) | **1000.00 ×** |" in page


def test_the_page_gives_a_reason_for_a_missing_figure(results):
    page = fill_in(PAGE.read_text(), results)
    for reason in ("2 of 2,000 jobs never ran", "no bulk call"):
        assert f"</sup> {reason}" in page


def test_the_page_describes_and_notes_only_rows_that_it_has(results):
    results.systems["floor"] = system(
        "bare redis-py", "default", "apart", **dict.fromkeys(("lateness", "instant"), "a loop")
    )
    page = on_time(results)
    assert "bare redis-py" not in page.lower() and "a loop" not in page
    results.records.append(record("lateness", "floor", "apart", p50_ms=0.3, p99_ms=0.6, early=0))
    page = on_time(results)
    assert "| bare redis-py, apart | 0.30 ms |" in page and "*Apart*, one process" in page
    assert "Bare redis-py is a loop" not in page
    assert "a loop" in page.partition("<sup>1</sup> ")[2]


def on_time(results):
    return marked_part("On time", results)


def test_every_note_of_the_page_is_referred_to():
    parts = re.findall(r"<!-- figures: [^>]+ -->\n(.*?)<!-- end -->", PAGE.read_text(), re.DOTALL)
    assert len(parts) > 10
    for part in parts:
        referred = sorted({int(number) for number in re.findall(r"– <sup>(\d+)</sup>", part)})
        assert referred == [int(number) for number in re.findall(r"^<sup>(\d+)</sup>", part, re.MULTILINE)]


def test_the_page_names_every_row_in_which_a_peer_is_better_worst_first(results):
    results.records.append(record("trips", "delayq", "default", p50_ms=2.0))
    results.records.append(record("trips", "fast", "default", p50_ms=1.0))
    results.records.append(record("enqueue", "delayq", "default", rate=900))
    results.records.append(record("enqueue", "slow", "tuned", rate=1_000))
    page = fill_in(PAGE.read_text(), results)
    worst = "worst first: enqueue to start, idle: p50 (0.50 ×, Fast); enqueue one at a time (0.90 ×, Slow).**"
    assert worst in page
    assert "| enqueue one at a time | 900 | 1,000 (Slow) | **0.90 ×** |" in page


def test_a_new_user_and_the_tuned_configuration_have_columns_of_their_own(results):
    page = fill_in(PAGE.read_text(), results)
    assert "| Slow | 400 | 2,000 |" in page
    assert "| run, one worker process, new user | 50,000 | 10,000 (Fast) | **5.00 ×** |" in page


def test_only_the_named_parts_of_the_page_are_rewritten_and_say_that_their_run_was_another(results):
    results.content["sizes"]["jobs"] = 10
    before = PAGE.read_text()
    after = fill_in(before, results, only=["New user and tuned"])
    assert "*A run of its own in small sizes, too small to compare: 2026-01-01 00:00 UTC, 3 rounds" in after
    assert "| Slow | 400 | 2,000 |" in after
    assert after.partition("## New user")[0] == before.partition("## New user")[0]
    assert after.partition("## What")[2] == before.partition("## What")[2]


def test_the_page_says_to_which_cpu_a_run_was_pinned(results):
    assert "No process was pinned to a CPU." in fill_in(PAGE.read_text(), results)
    results.content["machine"]["pinned"] = [1]
    assert "were all pinned to CPU 1." in fill_in(PAGE.read_text(), results)


def test_scenarios_of_few_systems_measure_only_these_a_django_project_in_both_kinds(results):
    every = Selection(systems=["delayq", "slow", "fast"], tuned=True)
    assert set(every.measurements(results, "django_run")) == {("delayq", "default"), ("delayq", "tuned")}
    assert every.systems_of("sleeps") == ["delayq"]


def test_each_peer_is_measured_in_its_default_and_tuned_configuration(results):
    every = Selection(systems=["delayq", "slow", "fast"])
    for scenario in ("enqueue", "trips", "lateness", "instant", "idle"):
        assert set(every.measurements(results, scenario)) >= {("slow", "default"), ("slow", "tuned")}
    assert "slow" not in dict(every.measurements(results, "bulk"))
    tuned = Selection(systems=["delayq", "slow", "fast"], tuned=True)
    assert [*tuned.measurements(results, "trips")] == [("delayq", "default"), ("slow", "tuned"), ("fast", "default")]
    # The default was measured, and is too slow to be the best in another round.
    assert ("slow", "default") not in [*every.measurements(results, "drain")]


def test_a_peer_whose_workers_fall_behind_has_that_reason(results):
    results.records.append(record("waiting", "slow", "tuned", jobs=100_000, bytes=500))
    assert "did not run within a minute" in fill_in(PAGE.read_text(), results)


def test_a_rewritten_page_keeps_nothing_of_the_previous_run(results):
    page = fill_in(PAGE.read_text(), results)
    assert fill_in(page, results) == page
    results.records.clear()
    assert "50,000" not in fill_in(page, results)


def test_the_page_names_the_sizes_of_the_whole_run():
    page = PAGE.read_text()
    for text in (
        f"{WHOLE.jobs:,} no-op jobs wait",
        f"{WHOLE.spread:,} jobs due evenly over {WHOLE.spread_seconds:.0f} s",
        f"{WHOLE.instant:,} jobs due in the same millisecond",
        f"{WHOLE.trips} times",
        f"Each of {WHOLE.django_jobs:,} jobs",
        f"handles {WHOLE.django_requests:,} requests",
    ):
        assert text in page


def test_a_chart_has_the_best_bar_first_and_needs_two_systems(results):
    drawn = bars(results, "bench-run.svg")
    assert drawn.index("django_delayq") < drawn.index("Fast") < drawn.index("Slow")
    assert "2,000" in drawn and ">400<" not in drawn
    assert [name for name in CHARTS if bars(results, name)] == ["bench-run.svg", "bench-late.svg"]


@pytest.fixture
def runs(tmp_path, monkeypatch):
    record = RunRecord(tmp_path / "record", 4)
    monkeypatch.setenv("BENCH_RUN_RECORD", str(tmp_path / "record"))
    monkeypatch.setattr(work, "_record", None)
    monkeypatch.setattr(run_record, "WAIT_FOR_DUPLICATES", 0)
    return record


def test_jobs_that_each_ran_once_are_a_valid_run(runs):
    for number in range(4):
        work.record_start(number, *work.PAYLOAD)
    runs.check(0, 4)
    assert runs.all_ran(0, 4) and sorted(runs.starts_us(0, 4)) == runs.starts_us(0, 4)


def test_a_lost_job_and_one_that_ran_twice_make_a_run_invalid(runs):
    for number in (0, 1, 2, 1):
        work.noop(number, *work.PAYLOAD)
    with pytest.raises(InvalidRun, match="of 4 jobs 1 never ran and 1 ran more than once"):
        runs.check(0, 4)
    with pytest.raises(InvalidRun, match="1 ran more than once"):
        runs.check(0, 4, complete=False)
    runs.check(2, 2, complete=False)


def test_jobs_missing_long_after_all_others_are_lost_not_slow(runs, monkeypatch):
    work.noop(0, *work.PAYLOAD)
    monkeypatch.setattr(run_record, "STALL_LIMIT", 0)
    with pytest.raises(InvalidRun, match="3 of 4 jobs had not run"):
        runs.wait(0, 4, seconds=0.02)
