"""Project: a small Django project in a folder, whose tests run as its developer would run them."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
SETTINGS = """
SECRET_KEY = "x"
USE_TZ = True
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django_delayq", *APPS]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3", "TEST": {"NAME": None}}}
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
# Nothing listens there: a test that connected to it would fail.
DELAYQ = {"REDIS": "redis://127.0.0.1:1/0", "LEASE": 60}
from project.settings_tasks import TASKS
"""
TASKS = """
TASKS = {"default": {"BACKEND": "django_delayq.backend.DelayQBackend"}}
"""
MANAGE = """
import os
import sys
from django.core.management import execute_from_command_line
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
execute_from_command_line(sys.argv)
"""


class Project:
    """A project's files, and the two ways to run its tests."""

    def __init__(self, folder: Path, files: dict[str, str], *, apps: Sequence[str] = ("shop",)) -> None:
        self.folder = folder
        known = {
            "project/__init__.py": "",
            "project/settings.py": f"APPS = {list(apps)!r}\n{SETTINGS}",
            "project/settings_tasks.py": TASKS,
            "manage.py": MANAGE,
            **{f"{app}/__init__.py": "" for app in apps},
        }
        for name, text in {**known, **files}.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)

    def pytest(self, *options: str) -> tuple[int, str]:
        """Run pytest with a configuration that only names the settings; returns its exit code and output."""
        (self.folder / "pytest.ini").write_text("[pytest]\nDJANGO_SETTINGS_MODULE = project.settings\n")
        return self._run("-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:valkey", *options)

    def manage(self, *arguments: str) -> tuple[int, str]:
        """Run manage.py; returns its exit code and output."""
        return self._run("manage.py", *arguments)

    def _run(self, *command: str) -> tuple[int, str]:
        excluded = ("DJANGO_", "DELAYQ_", "PYTEST_")
        environment = {name: text for name, text in os.environ.items() if not name.startswith(excluded)}
        done = subprocess.run(
            [sys.executable, "-W", "error::ResourceWarning", *command],
            cwd=self.folder,
            env={**environment, "PYTHONPATH": f"{self.folder}{os.pathsep}{ROOT}"},
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.returncode, done.stdout + done.stderr
