"""Projects: their tests run in processes of their own, and pass or fail as they should.

Every process takes seconds to start, so one project holds all tests that pass, and another all that fail.
"""

import pickle
import re
from pathlib import Path

import pytest

from django_delayq.testing import DelayQ
from tests.testing_helpers.docs.pages import (
    PAGES,
    ROOT,
    SECTIONS,
    file_blocks,
    files_in,
    migrating_part,
    page,
    readme,
    readme_blocks,
    recurring_part,
    runs,
    shown,
)
from tests.testing_helpers.docs.projects import SETTINGS, Project

DOCS = page("tasks/testing.md")
TASKS = DOCS["shop/tasks.py"]
#: The page about middleware, with the list of classes that it shows.
MIDDLEWARE = PAGES["docs/tasks/middleware.md"]
LISTED = shown("docs/tasks/middleware.md", "python", "DELAYQ")
# tests/databases/test_tenants.py runs the test that needs PostgreSQL.
MIDDLEWARE_FILES = {name: text for name, text in files_in(MIDDLEWARE).items() if name != "shop/test_tenants.py"}
#: Tests of the recipes, which show none.
RECIPES = ROOT / "tests" / "testing_helpers" / "docs" / "recipes"
#: Pages whose examples are apps of their own.
NAMES = (
    "recipes/failures.md",
    "recipes/running.md",
    "recipes/together.md",
    "recipes/when.md",
    "redis/encryption.md",
    "redis/security.md",
    "running/operating.md",
    "start/installation.md",
    "tasks/handles.md",
    "tasks/options.md",
    "tasks/retries.md",
)
FAILING = """
from django.test import TestCase
from django_delayq.testing import DelayQMixin
from shop.tasks import charge, send_reminder

class FailingTests(DelayQMixin, TestCase):
    def test_of_another_time(self):
        send_reminder.after(hours=1).enqueue(7)
        self.delayq.assert_enqueued(send_reminder, args=[7], due_in=600)

    def test_of_an_error(self):
        charge.enqueue(5)
        self.delayq.run_due()

    def test_in_parts(self):
        for number in (1, 2):
            with self.subTest(number=number):
                send_reminder.enqueue(number)
                self.delayq.assert_enqueued(send_reminder, count=1)

class OtherTests(DelayQMixin, TestCase):
    def test_of_nothing(self):
        assert self.delayq.enqueued == []
"""
#: A test of the functions that every module of docs/start/migrating.md has.
REMINDERS = """
from datetime import timedelta
from django.utils import timezone
from {app} import reminders
from {app}.tasks import send_reminder

def test_reminders(delayq, capsys):
    reminders.remind(1)
    reminders.remind_later(2)
    moment = timezone.now() + timedelta(days=6)
    wanted, unwanted = reminders.remind_at(3, moment), reminders.remind_at(4, moment)
    reminders.forget(unwanted)
    reminders.forget(unwanted)
    delayq.assert_enqueued(send_reminder, args=[1], due_in=0, count=1)
    delayq.assert_enqueued(send_reminder, args=[2], due_in=600, count=1)
    assert delayq.assert_enqueued(send_reminder, args=[3], due=moment, count=1).id == wanted
    delayq.assert_not_enqueued(send_reminder, args=[4])
    delayq.drain()
    assert capsys.readouterr().out.splitlines() == ["reminding 1", "reminding 2", "reminding 3"]
"""

#: A test of the recurring jobs in its sections.
RECURRING = """
from importlib.util import find_spec
from django_delayq.task import registry
from {app} import tasks

def test_recurring_jobs(delayq):
    declared = [each for task in registry.tasks() if task.name.startswith("{app}.") for each in task.recurring]
    assert declared
    if find_spec("{app}.digests"):
        from {app} import digests
        digests.set_digest(42, "Asia/Tokyo")
        [moment] = tasks.send_digest.schedules.get("digest:42").next()
        assert (moment.hour, str(moment.tzinfo)) == (8, "Asia/Tokyo")
        ran = delayq.advance(days=1, run=True)
        assert [(run.task, run.args) for run in ran] == [("{app}.tasks.send_digest", [42])]
        digests.stop_digest(42)
        assert tasks.send_digest.schedules.get("digest:42") is None
"""
#: A test that runs every file of the pages, also one that no other test needs.
IMPORTS = """
from importlib import import_module

def test_every_file_can_be_imported():
    for name in {modules}:
        import_module(name)
"""


@pytest.fixture
def failing(tmp_path: Path) -> Project:
    """A project whose tests fail, except one."""
    return Project(tmp_path, {"shop/tasks.py": TASKS, "shop/test_failing.py": FAILING})


def project() -> tuple[dict[str, str], list[str]]:
    """Return the files of the pages and the tests of their code, and the apps in which they are."""
    files, apps = {**DOCS, **readme("readme")}, ["shop", "readme"]
    for number, section in enumerate(SECTIONS):
        apps.append(app := f"from{number}")
        files |= files_in(migrating_part(section, "After"), app=app) | {
            f"{app}/test_reminders.py": REMINDERS.format(app=app)
        }
        if shown := files_in(recurring_part(section, "After"), app=f"recurring{number}"):
            apps.append(app := f"recurring{number}")
            files |= shown | {f"{app}/test_recurring.py": RECURRING.format(app=app)}
    for name in NAMES:
        shown = page(name)
        assert not shown.keys() & files.keys(), name
        apps += sorted({path.split("/")[0] for path in shown} - {"project"})
        files |= shown
    for path in RECIPES.glob("[!_]*.py"):
        files[f"recipes/test_{path.name}"] = path.read_text()
    modules = [path.removesuffix(".py").replace("/", ".") for path in files if not re.search(r"(^|/)(con)?test", path)]
    files["recipes/test_imports.py"] = IMPORTS.format(modules=modules)
    return files, [*apps, "recipes"]


@runs(
    readme_blocks(),
    *(file_blocks(PAGES[f"docs/{name}"]) for name in ("tasks/testing.md", *NAMES)),
    *(file_blocks(part(section, "After")) for section in SECTIONS for part in (migrating_part, recurring_part)),
)
def test_all_tests_that_the_pages_show_pass_under_pytest(tmp_path: Path) -> None:
    files, apps = project()
    # pytest finds other names by itself.
    tests = [f"{app}/tests.py" if f"{app}/tests.py" in files else app for app in apps]
    code, output = Project(tmp_path, files, apps=apps).pytest("tests", *tests)
    assert code == 0, output
    shown = sum(text.count("def test_") for text in files.values())
    assert f"{shown} passed" in output


@runs(LISTED, (text for text in file_blocks(MIDDLEWARE) if "tenants.py" not in text.split("\n")[0]))
def test_the_middleware_of_its_page_passes_its_tests(tmp_path: Path) -> None:
    # Nothing listens there.
    settings = f"APPS = ['shop']\n{SETTINGS}\n{LISTED}\nDELAYQ['REDIS'] = 'redis://127.0.0.1:1/0'\n"
    files = {**MIDDLEWARE_FILES, "project/settings.py": settings}
    code, output = Project(tmp_path, files).pytest("shop")
    assert code == 0, output
    assert f"{sum(text.count('def test_') for text in files.values())} passed" in output


def test_tests_run_in_several_processes_and_no_server_outlives_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Django gives each process whole classes, so two processes need two.
    twice = DOCS["shop/tests.py"].replace("ReminderTests", "MoreTests")
    project = Project(tmp_path, {**DOCS, "shop/test_more.py": twice})
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    code, output = project.manage("test", "shop", "--parallel", "2", "--pattern", "test*.py")
    assert code == 0, output
    assert "Cloning test database" in output
    assert f"Ran {2 * twice.count('def test_')} tests" in output
    assert [path for path in (tmp_path / "tmp").iterdir() if "delayq" in path.name] == []


def test_a_queue_can_be_pickled_for_another_process(delayq: DelayQ) -> None:
    assert isinstance(pickle.loads(pickle.dumps(delayq)), DelayQ)


def test_failures_show_their_reason_under_pytest(failing: Project) -> None:
    code, output = failing.pytest("shop")
    assert code == 1
    assert "3 failed" in output
    assert "ConnectionError: the bank does not answer" in output
    assert "Enqueued 2 times instead of 1" in output
    # The traceback ends in the test, not in the package.
    part = output.split(" FailingTests.test_of_another_time ")[1].split("\n", 1)[1].split("\n____")[0]
    assert "def test_of_another_time" in part
    assert "delayq.py:" not in part
    assert "AssertionError: Not enqueued: shop.tasks.send_reminder(7) due in 10 min" in part
    assert "due_in: expected 10 min, got" in part


def test_failures_show_their_reason_under_djangos_runner(failing: Project) -> None:
    code, output = failing.manage("test", "shop")
    assert code == 1
    assert "FAILED (failures=2, errors=1)" in output
    assert "due_in: expected 10 min, got" in output
    assert "ConnectionError: the bank does not answer" in output
    assert "Enqueued 2 times instead of 1" in output


def test_without_pytest_django_the_fixture_works_too(tmp_path: Path) -> None:
    setup = "import os, django\nos.environ['DJANGO_SETTINGS_MODULE'] = 'project.settings'\ndjango.setup()\n"
    project = Project(tmp_path, {**DOCS, "conftest.py": setup})
    code, output = project.pytest("tests/test_retries.py", "-p", "no:django", "-o", "DJANGO_SETTINGS_MODULE=")
    assert code == 0, output
