"""A project with django_delayq alone in INSTALLED_APPS: no models, no migrations, no database, no admin, no auth."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from django.apps import apps
from redis import Redis

ROOT = Path(__file__).parents[2]
SETTINGS = """
INSTALLED_APPS = ["django_delayq"]
DELAYQ = {{"REDIS": {url!r}, "TASK_MODULES": ["bare_tasks"]}}
"""
TASKS = """
from django_delayq import current_job, delayed_task

@delayed_task
def note(path, word):
    with open(path, "a") as ledger:
        ledger.write(f"{word} {current_job().attempt}\\n")

@delayed_task
async def note_async(path, word):
    note(path, word)
"""
SEND = """
import sys
import django
django.setup()
from bare_tasks import note, note_async
path = sys.argv[1]
jobs = [note.enqueue(path, "now"), note.after(microseconds=1).enqueue(path, "soon"), note_async.enqueue(path, "async")]
waiting = note.after(hours=1).enqueue(path, "never")
assert waiting.state == "scheduled" and waiting.cancel()
assert {job.refresh().state for job in jobs} <= {"ready", "scheduled"}
from django.db import connections
assert not connections.all(initialized_only=True)
"""
LOADED = """
import sys
import django
django.setup()
from django.core.management import call_command
from django.core.management.base import SystemCheckError
import django_delayq.management.commands.run_worker, django_delayq.management.commands.run_dispatcher
call_command("check")
print(*sorted(name for name in sys.modules if name.startswith("django.contrib.")))
"""


@pytest.fixture
def run(client: Redis, redis_url: str, tmp_path: Path) -> Callable[..., str]:
    """Run Python in the bare project: `run("-m", "django", "check")` returns its output."""
    (tmp_path / "bare_settings.py").write_text(SETTINGS.format(url=redis_url))
    (tmp_path / "bare_tasks.py").write_text(TASKS)
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "bare_settings",
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
    }

    def run_python(*arguments: str) -> str:
        command = [sys.executable, "-W", "error::RuntimeWarning", *arguments]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run_python


def test_bare_project_enqueues_and_runs_jobs(run: Callable[..., str], tmp_path: Path, client: Redis) -> None:
    ledger = tmp_path / "ledger"
    run("-c", SEND, str(ledger))
    assert not ledger.exists()
    run("-m", "django", "run_worker", "--drain")
    assert sorted(ledger.read_text().splitlines()) == ["async 1", "now 1", "soon 1"]
    assert client.hlen("delayq:{0}:jobs") == client.zcard("delayq:{0}:leases") == 0


def test_drained_worker_has_nothing_to_do_the_second_time(run: Callable[..., str], tmp_path: Path) -> None:
    run("-c", SEND, str(tmp_path / "ledger"))
    for _ in range(2):
        run("-m", "django", "run_worker", "--drain")
    assert len((tmp_path / "ledger").read_text().splitlines()) == 3


def test_bare_project_passes_its_checks_and_loads_nothing_of_contrib(run: Callable[..., str]) -> None:
    assert "django.contrib" not in run("-c", LOADED)


def test_there_are_no_models() -> None:
    assert list(apps.get_app_config("django_delayq").get_models(include_auto_created=True)) == []


def test_there_are_no_migrations_to_make() -> None:
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "django", "makemigrations", "--check", "--dry-run"]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No changes detected" in done.stdout
    assert not list((ROOT / "django_delayq").rglob("migrations"))
