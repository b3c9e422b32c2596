"""The two frameworks, Django's tasks and their backport: R1 to R3 and R15."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from django.test import override_settings

from django_delayq.backend.backend import DelayQBackend
from tests.django_tasks.compat import (
    NAME,
    InvalidTask,
    default_task_backend,
    exceptions,
)
from tests.django_tasks.conftest import BACKEND
from tests.django_tasks.worker import OneWorker
from tests.sample_app import django_tasks

ROOT = Path(__file__).parents[3]


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new process."""
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


ALONE = """
import sys
sys.modules[{hidden!r}] = None
import django
from django.conf import settings
settings.configure(SECRET_KEY="x", INSTALLED_APPS=["django_delayq"], DELAYQ={{"REDIS": "redis://127.0.0.1:1"}},
    TASKS={{"default": {{"BACKEND": {backend!r}}}}} if {used} else {{}})
django.setup()
"""


def test_r01_one_file_imports_either_framework_and_the_new_name_wins() -> None:
    package = ROOT / "django_delayq"
    naming = {
        path.name
        for path in package.rglob("*.py")
        if "django_tasks" in path.read_text() or "from django.tasks" in path.read_text()
    }
    assert naming == {"compat.py"}
    assert DelayQBackend.__mro__[1].__module__.startswith(f"{NAME}.")


def test_r01_exceptions_are_those_of_the_installed_framework() -> None:
    from django_delayq.backend import compat

    assert compat.InvalidTask is InvalidTask
    assert compat.TaskResultDoesNotExist is exceptions.TaskResultDoesNotExist


def test_r02_the_backport_is_not_needed_where_django_has_tasks() -> None:
    hidden = "django_tasks" if NAME == "django.tasks" else "nothing_of_the_sort"
    ran = run_python(
        ALONE.format(hidden=hidden, backend=BACKEND, used=NAME == "django.tasks")
        + "from django_delayq import delayed_task; import django_delayq.task.handle\n"
        "assert 'django_tasks' not in {name for name, module in sys.modules.items() if module}\n"
    )
    assert ran.returncode == 0, ran.stderr


def test_r02_without_either_framework_delayed_tasks_still_work() -> None:
    code = ALONE.format(hidden="django_tasks", backend=BACKEND, used=False).replace(
        "import django\n", "sys.modules['django.tasks'] = None\nimport django\n"
    )
    ran = run_python(code + "from django_delayq import delayed_task, get_store; get_store()\n")
    assert ran.returncode == 0, ran.stderr
    ran = run_python(code + "import django_delayq.backend.backend\n")
    assert "pip install 'django-delayq[compat]'" in ran.stderr


def test_r15_the_backend_is_imported_before_any_model_can_be() -> None:
    ran = run_python(
        ALONE.format(hidden="nothing_of_the_sort", backend=BACKEND, used=True).replace("django.setup()\n", "")
        + "import django_delayq.backend.backend\nfrom django.apps import apps\nassert not apps.apps_ready\n"
    )
    assert ran.returncode == 0, ran.stderr


def test_r03_tasks_of_either_framework_are_accepted(tasks_settings: Any) -> None:
    import django_tasks as backport
    from django_tasks.base import Task

    # A project may have both: a task made by the backport's own backend and enqueued with this one.
    with override_settings(TASKS={"default": {"BACKEND": "django_tasks.backends.immediate.ImmediateBackend"}}):
        foreign = backport.task(django_tasks.add.func)
    assert type(foreign) is Task
    result = default_task_backend.enqueue(foreign, (1,), {"b": 2})
    OneWorker().drain()
    result.refresh()
    assert result.return_value == 3
