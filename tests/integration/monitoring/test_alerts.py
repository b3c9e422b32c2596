"""Alert rules and the queries of scalers, evaluated by Prometheus itself.

Each alert fires when it should, and none does while all is well.
A query returns one number, however many processes export it.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testing_helpers.docs.pages import runs, shown

RULES = Path(__file__).parents[3] / "docs" / "deployment" / "alerts.yml"
#: Series of a healthy store, by the minute.
WELL = {
    'delayq_processes{job="shop",kind="dispatcher"}': "1x40",
    'delayq_processes{job="shop",kind="worker"}': "2x40",
    'delayq_jobs{job="shop",queue="mail",state="overdue"}': "0x40",
    'delayq_oldest_ready_seconds{job="shop",queue="mail"}': "1x40",
    'delayq_queue_paused{job="shop",queue="mail"}': "0x40",
    'delayq_queue_start_delay_seconds_bucket{job="shop",queue="mail",le="0.008"}': "0+60x40",
    'delayq_queue_start_delay_seconds_bucket{job="shop",queue="mail",le="+Inf"}': "0+60x40",
    'delayq_task_outcomes_total{job="shop",task="remind",outcome="failed"}': "7x40",
    'delayq_queue_outcomes_total{job="shop",queue="mail",outcome="reclaimed"}': "3x40",
    'delayq_workers_needed{job="shop"}': "2x40",
    'delayq_servers_missing{job="shop"}': "0x40",
}
WORKERS = 'delayq_processes{job="shop",kind="worker"}'
LATE = 'delayq_oldest_ready_seconds{job="shop",queue="mail"}'
#: What differs -> the alerts that fire then, after half an hour.
CASES: dict[str, tuple[dict[str, str], set[str]]] = {
    "all is well": ({}, set()),
    "nothing is scraped": (dict.fromkeys(WELL, "1x5"), {"DelayqNoFigures"}),
    "no dispatcher": ({'delayq_processes{job="shop",kind="dispatcher"}': "0x40"}, {"DelayqNoDispatcher"}),
    "no worker": ({WORKERS: "0x40"}, {"DelayqNoWorker", "DelayqWorkersNeeded"}),
    "no worker of one of two projects": (
        {'delayq_processes{job="other",kind="worker"}': "0x40"},
        {"DelayqNoWorker"},
    ),
    "nobody promotes": ({'delayq_jobs{job="shop",queue="mail",state="overdue"}': "9x40"}, {"DelayqOverdue"}),
    "a queue is late": ({LATE: "61x40"}, {"DelayqQueueLate"}),
    "a late queue is paused": ({LATE: "61x40", 'delayq_queue_paused{job="shop",queue="mail"}': "1x40"}, set()),
    "jobs start late": (
        {'delayq_queue_start_delay_seconds_bucket{job="shop",queue="mail",le="0.008"}': "0x40"}
        | {'delayq_queue_start_delay_seconds_bucket{job="shop",queue="mail",le="33"}': "0+60x40"},
        {"DelayqStartDelay"},
    ),
    "a job failed": (
        {'delayq_task_outcomes_total{job="shop",task="remind",outcome="failed"}': "7x25 8x14"},
        {"DelayqFailedJobs"},
    ),
    "the first job of a task failed": (
        {'delayq_task_outcomes_total{job="shop",task="new",outcome="failed"}': "_x25 1x14"},
        {"DelayqFailedJobs"},
    ),
    "a worker was lost": (
        {'delayq_queue_outcomes_total{job="shop",queue="mail",outcome="reclaimed"}': "3x25 5x14"},
        {"DelayqLostWorkers"},
    ),
    "more workers are needed": ({'delayq_workers_needed{job="shop"}': "3x40"}, {"DelayqWorkersNeeded"}),
    "a server is missing": ({'delayq_servers_missing{job="shop"}': "1x40"}, {"DelayqServerMissing"}),
}
#: What the page shows for a scaler: the workers of two queues, with 8 slots each.
WORKERS_OF_QUEUES = shown("docs/running/monitoring.md", "promql")
NAMES = sorted({name for _, names in CASES.values() for name in names})


def test_every_alert_has_a_case() -> None:
    assert sorted(line.split()[-1] for line in RULES.read_text().splitlines() if " - alert: " in line) == NAMES


def test_alerts_fire_when_they_should(programs: tuple[str, str], tmp_path: Path) -> None:
    tests = [_case(name, WELL | changes, fires) for name, (changes, fires) in CASES.items()]
    evaluate(tests, programs, tmp_path)


@runs(WORKERS_OF_QUEUES)
def test_the_workers_of_some_queues_are_those_that_their_slots_need(programs: tuple[str, str], tmp_path: Path) -> None:
    slots = {("mail", "a"): 8, ("mail", "b"): 9, ("bulk", "a"): 8, ("other", "a"): 50}
    case = {
        "interval": "1m",
        "input_series": [
            {"series": f'delayq_queue_slots_needed{{queue="{queue}",instance="{instance}"}}', "values": f"{needed}x2"}
            for (queue, instance), needed in slots.items()
        ],
        # Two processes tell of the same queue.
        "promql_expr_test": [
            {"expr": WORKERS_OF_QUEUES, "eval_time": "1m", "exp_samples": [{"labels": "{}", "value": 3}]}
        ],
    }
    evaluate([case], programs, tmp_path)


@pytest.mark.parametrize("name", ["keda.yml", "prometheus-adapter.yml"])
def test_a_scaler_gets_one_number_from_two_dispatchers(name: str, programs: tuple[str, str], tmp_path: Path) -> None:
    file = yaml.safe_load((RULES.parent / name).read_text())
    if name == "keda.yml":
        query = file["spec"]["triggers"][0]["metadata"]["query"]
    else:
        [rule] = file["externalRules"]
        # The adapter fills in its template so.
        query = rule["metricsQuery"].replace("<<.Series>>", rule["seriesQuery"])
        query = query.replace("<<.LabelMatchers>>", 'namespace="shop"')
    series = [f'delayq_workers_needed{{job="shop",namespace="shop",instance="{each}"}}' for each in "ab"]
    case = {
        "interval": "1m",
        # Then both are lost: Prometheus has no number, which is not 0.
        "input_series": [{"series": each, "values": "3x2 stale"} for each in series],
        "promql_expr_test": [
            {"expr": query, "eval_time": "1m", "exp_samples": [{"labels": "{}", "value": 3}]},
            {"expr": query, "eval_time": "4m", "exp_samples": []},
        ],
    }
    evaluate([case], programs, tmp_path)


def evaluate(tests: list[dict[str, Any]], programs: tuple[str, str], folder: Path) -> None:
    """Let promtool run its kind of tests."""
    path = folder / "tests.yml"
    # JSON is YAML.
    path.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([programs[1], "test", "rules", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _case(name: str, series: dict[str, str], fires: set[str]) -> dict[str, Any]:
    """Return a test of promtool: which alerts fire after half an hour."""
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": "30m",
                "exp_samples": [{"labels": f'{{alertname="{each}"}}', "value": 1} for each in sorted(fires)],
            }
        ],
    }
