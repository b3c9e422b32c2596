"""The benchmarks that use internals of the package still run."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from django.test import Client

from benchmarks import admin_pages
from benchmarks.run_record import RunRecord
from tests.subprocesses import ROOT, python_path


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("delayq_settings")
def test_every_measured_page_of_the_admin_exists(admin_client: Client) -> None:
    job_id = admin_pages._fill(80)
    for name, path in admin_pages.PAGES.items():
        page = admin_client.get(admin_pages.URL + path.format(job=job_id))
        assert page.status_code == 200, name


def test_growth_is_measured(redis_url: str) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": python_path(),
        "DJANGO_SETTINGS_MODULE": "benchmarks.peer_runtime.django_project",
        "BENCH_URL": redis_url,
        "BENCH_RUN_RECORD": "/nonexistent/record",
        "BENCH_CONFIGURATION": "default",
    }
    small = "from benchmarks import growth; growth.SMALL, growth.ROUNDS, growth.TURNS, growth.DUE = 10, 1, 2, 250"
    command = [sys.executable, "-c", f"{small}; growth.main()", "300"]
    run = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["size"] == 300


def test_requests_of_the_django_project_enqueue_jobs_that_each_write_one_row(redis_url: str, tmp_path: Path) -> None:
    database, runs = tmp_path / "db.sqlite3", RunRecord(tmp_path / "record", 20)
    environment = {
        **os.environ,
        "PYTHONPATH": python_path(),
        "DJANGO_SETTINGS_MODULE": "benchmarks.django_jobs.settings",
        "BENCH_SYSTEM": "delayq",
        "BENCH_DATABASE": json.dumps({"ENGINE": "django.db.backends.sqlite3", "NAME": str(database)}),
        "BENCH_URL": redis_url,
        "BENCH_RUN_RECORD": str(tmp_path / "record"),
        "BENCH_CONFIGURATION": "tuned",
    }

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *command], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    producer = ("benchmarks.peer_runtime.produce", "benchmarks.django_jobs.peers.delayq")
    run(*producer, json.dumps({"step": "prepare"}))
    figures = json.loads(run(*producer, json.dumps({"step": "requests", "first": 0, "count": 20})))
    assert set(figures) == {"rate", "enqueue_us"}
    run("django", "run_worker", "--with-dispatcher", "--drain", "--concurrency", "1")
    runs.check(0, 20)
    rows = sqlite3.connect(database)
    assert sorted(rows.execute("SELECT job, cents FROM django_jobs_sale")) == [(n, n + 1) for n in range(20)]
    assert rows.execute("SELECT count(*) FROM django_jobs_order").fetchone() == (40,)
