"""django-celery-beat: its real models, in a process of their own, where its app is installed."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_delayq.task.recurring.celery_beat import copy_periodic_tasks
from tests.subprocesses import ROOT, python_path
from tests.testing_helpers.docs.pages import runs, shown

#: The session in docs/start/migrating.md. `rows.py` repeats it.
SHOWN = shown("docs/start/migrating.md", "pycon")


def test_without_its_tables_there_is_nothing_to_copy() -> None:
    with pytest.raises(ImproperlyConfigured, match="reads the tables of django_celery_beat; add it to INSTALLED_APPS"):
        copy_periodic_tasks()


@runs(SHOWN)
# It has not been released for each Django.
@pytest.mark.skipif(find_spec("django_celery_beat") is None, reason="django-celery-beat is not installed")
@pytest.mark.parametrize("name", ["crontabs", "rows"])
def test_tables_of_django_celery_beat_become_schedules(name: str) -> None:
    path = Path(__file__).with_name(f"{name}.py")
    # The path of this process: a copy of the package with a planted bug comes first.
    options = ["--ds=tests.integration.task.celery_beat.settings", "-o", "pythonpath=", "-p", "no:cacheprovider"]
    environment = {each: text for each, text in os.environ.items() if not each.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--no-migrations", *options, str(path)],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": python_path(), "SESSION": SHOWN},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
