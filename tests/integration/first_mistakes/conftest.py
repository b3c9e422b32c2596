"""Fixtures: a project as a newcomer makes it, and its commands as real processes on a real Redis."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from django.core.management import call_command
from redis import Redis

from tests.subprocesses import Command, until
from tests.testing_helpers.docs.pages import page, shown
from tests.warm_process import WarmProcess, python_path

#: Appended to what `startproject` writes. The page's own block comes before it.
SETTINGS = """
import os
DELAYQ.update({"REDIS": os.environ["REDIS"]} if "REDIS" in os.environ else {})
INSTALLED_APPS += ["django_delayq", "APP"]
"""
TASK = """
from django_delayq import delayed_task

@delayed_task
def post(name):
    print("posted", name)
"""
#: What the page shows: a block of settings, and files.
PAGE_SETTINGS = shown("docs/troubleshooting.md", "python", "# settings.py\n")
PAGE_FILES = page("troubleshooting.md")


class Project:
    """A project's folder, and its commands."""

    def __init__(self, folder: Path, warm: WarmProcess, stack: ExitStack, logs: Path) -> None:
        self.folder, self._warm, self._stack, self._logs, self._started = folder, warm, stack, logs, 0
        #: The setting of each command that is given no other.
        self.redis = ""

    def start(self, *command: str, redis: str = "", settings: str = "newcomer.settings") -> Command:
        """Start a command and return without waiting."""
        environ = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": settings,
            "PYTHONPATH": python_path(self.folder),
            "PYTHONUNBUFFERED": "1",
            "REDIS": redis or self.redis,
        }
        self._started += 1
        path = self._logs / f"command-{self._started}.log"
        with open(path, "ab") as log:
            forked = self._warm.start(["-m", "django", *command], environ=environ, log=log.fileno())
        started = Command(forked, path)
        self._stack.callback(started.close)
        return started

    def run(self, *command: str, redis: str = "", settings: str = "newcomer.settings") -> str:
        """Run a command to its end, and return all that it printed."""
        started = self.start(*command, redis=redis, settings=settings)
        started.wait()
        return started.output

    def shell(self, program: str, *, redis: str = "") -> str:
        """Run a program in Django's shell, and return all that it printed."""
        return self.run("shell", "-v0", "-c", program, redis=redis)

    def log_of(self, *command: str, word: str, redis: str = "", settings: str = "newcomer.settings") -> str:
        """Start a command, wait until a line of its log has a word, kill it, and return that line."""
        started = self.start(*command, redis=redis, settings=settings)

        def line() -> str:
            return next((each for each in started.output.splitlines(keepends=True) if word in each), "")

        def found_or_ended() -> str:
            assert line() or started.running, started.output
            return line() if line().endswith("\n") else ""

        found = until(found_or_ended, what=f"{word!r} in its log", details=lambda: started.output)
        started.close()
        return str(found).strip()


@pytest.fixture(scope="session")
def project_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two projects, as `startproject` and `startapp` make them, and an app that none of them has installed."""
    folder = tmp_path_factory.mktemp("newcomer")
    for project, app in {"newcomer": "shop", "other": "stock"}.items():
        path = folder / project
        (folder / app).mkdir()
        call_command("startapp", app, str(folder / app))
        (folder / f"{project}-made").mkdir()
        call_command("startproject", project, str(folder / f"{project}-made"))
        (folder / f"{project}-made" / project).rename(path)
        with open(path / "settings.py", "a") as settings:
            settings.write(PAGE_SETTINGS + SETTINGS.replace('"APP"', repr(app)))
    for name, text in PAGE_FILES.items():
        (folder / name).write_text(text)
    (folder / "blog").mkdir()
    (folder / "blog" / "tasks.py").write_text(TASK)
    return folder


@pytest.fixture
def project(
    project_folder: Path, warm_process: WarmProcess, redis_url: str, client: Redis, tmp_path: Path
) -> Iterator[Project]:
    """The newcomer's project, on an empty Redis."""
    with ExitStack() as stack:
        made = Project(project_folder, warm_process, stack, tmp_path)
        made.redis = redis_url
        yield made
