"""Upstream: Django's own tests of its tasks framework, run against our backend. `python -m tests.django_tasks.upstream`

They are taken from the source archive of the installed release, by pip; no other package has them. If they name the
dummy or the immediate backend, they get ours in its place (`replacements.py`). Tests that do not apply to a backend
that really stores are listed below with the reason. A name in the list that is no longer there is an error.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path

import django
from django.conf import settings
from django.test.runner import DiscoverRunner

from django_delayq.testing.local_redis import LocalRedisServer

#: Test -> why it does not apply to a backend like ours.
NOT_OURS = {
    "DummyBackendTestCase.test_refresh_result": "changes the dummy's results in memory; test_results.py refreshes ours",
    "DummyBackendTestCase.test_refresh_result_async": "changes the dummy's results in memory, as above",
    "ImmediateBackendTestCase.test_throws_keyboard_interrupt": "a worker is ended by signals; in a task's thread a "
    "KeyboardInterrupt is a failure like any other",
    "ImmediateBackendTestCase.test_cannot_get_result": "we have get_result",
    "ImmediateBackendTestCase.test_cannot_refresh_result": "we have get_result",
    "ImmediateBackendTestCase.test_cannot_pass_run_after": "we have run_after",
}
#: Module and class of a backend that the tests name -> the class that replaces it.
_CLASSES = {("dummy", "DummyBackend"): "Storing", ("immediate", "ImmediateBackend"): "AtOnce"}
_REPLACEMENTS = "tests.django_tasks.replacements"


def fetch(folder: Path) -> Path:
    """Download the source archive of the installed Django and return it."""
    version = django.get_version()
    wanted = ["--no-binary", ":all:", "--no-deps", "--dest", str(folder), f"django=={version}"]
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", *wanted], check=True, timeout=600)
    [archive] = folder.glob("*.tar.gz")
    return archive


def unpack(archive: Path, folder: Path) -> None:
    """Write `tests/tasks` of the archive to the folder as the package `tasks`, with our backend in place of theirs."""
    (folder / "tasks").mkdir()
    with tarfile.open(archive) as source:
        for member in source.getmembers():
            path = Path(member.name)
            wanted = path.parts[1:3] == ("tests", "tasks") and path.suffix == ".py"
            if wanted and (file := source.extractfile(member)):
                (folder / "tasks" / path.name).write_text(_with_ours(file.read().decode()))


def _with_ours(text: str) -> str:
    for (module, theirs), ours in _CLASSES.items():
        text = text.replace(f"django.tasks.backends.{module}.{theirs}", f"{_REPLACEMENTS}.{ours}")
        text = text.replace(
            f"from django.tasks.backends.{module} import {theirs}", f"from {_REPLACEMENTS} import {ours} as {theirs}"
        )
    return text


class Runner(DiscoverRunner):
    """Django's runner without what does not apply."""

    def build_suite(self, *args: object, **kwargs: object) -> unittest.TestSuite:
        """Return all tests but those; raises where one of them is not there."""
        suite = super().build_suite(*args, **kwargs)
        tests = {".".join(test.id().split(".")[-2:]): test for test in _each(suite)}
        if missing := NOT_OURS.keys() - tests.keys():
            raise LookupError(f"no such tests in Django {django.get_version()}: {sorted(missing)}")
        for name, reason in NOT_OURS.items():
            print(f"Not run: {name}: {reason}.")
        return self.test_suite(test for name, test in tests.items() if name not in NOT_OURS)


def _each(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _each(test)
        else:
            yield test


def main() -> int:
    """Run them and return how many failed."""
    with tempfile.TemporaryDirectory() as made, LocalRedisServer() as server:
        folder = Path(made)
        unpack(fetch(folder), folder)
        sys.path.insert(0, str(folder))
        os.chdir(folder)
        settings.configure(
            SECRET_KEY="only-for-tests",
            USE_TZ=True,
            INSTALLED_APPS=["django_delayq"],
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
            DELAYQ={"REDIS": server.url},
            TASKS={"default": {"BACKEND": "tests.django_tasks.replacements.Storing"}},
        )
        django.setup()
        return int(Runner(verbosity=1).run_tests(["tasks"]))


if __name__ == "__main__":
    sys.exit(main())
