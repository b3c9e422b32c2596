"""The benchmarks that use internals of the package still run."""

import json
import os
import subprocess
import sys

import pytest
from django.test import Client

from benchmarks import admin_pages
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
