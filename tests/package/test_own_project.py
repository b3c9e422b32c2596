"""In a new project, with the installed wheel alone, the steps of the README lead to a job that runs."""

import ast
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import Redis

from tests.package.installed import ROOT, BareEnvironment, own_environ, run
from tests.subprocesses import PATIENCE, until

README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
STEPS = BLOCK.findall(README.split("In your own project", 1)[1].split("\n## ")[0])
COMMANDS = [line[2:] for language, text in STEPS if language == "console" for line in text.splitlines()]
#: The first task that the README shows, and how it is enqueued.
TASK, CALL = re.fullmatch(
    r"(.*\n)\n\n(\S.*)\n", next(text for language, text in BLOCK.findall(README) if "@delayed_task" in text), re.DOTALL
).groups()  # type: ignore[union-attr]
NOTE = """

@delayed_task
def note(path: str) -> None:
    with open(path, "w") as file:
        file.write("ran")
"""
ENQUEUE = """
import sys, time
from shop import tasks
from shop.tasks import *
job = {call}
assert job.state == "scheduled", job.state
assert job.reschedule(delay=0.5)
tasks.note.after(seconds=0.5).enqueue({path!r})
deadline = time.monotonic() + {patience}
while job.refresh().state != "gone":
    assert time.monotonic() < deadline, job.state
    # It asks again until the job has ended: this process cannot import the helpers of the tests.
    time.sleep(0.02)
"""


def settings() -> tuple[list[str], dict[str, str]]:
    """Return the apps that the README adds to INSTALLED_APPS, and its DELAYQ."""
    [text] = [text for language, text in STEPS if language == "python" and "INSTALLED_APPS" in text]
    values = {
        statement.targets[0].id: ast.literal_eval(statement.value)
        for statement in ast.parse(text).body
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
    }
    assert values.keys() == {"INSTALLED_APPS", "DELAYQ"}
    return values["INSTALLED_APPS"], values["DELAYQ"]


@pytest.fixture
def project(bare: BareEnvironment, tmp_path: Path, client: Redis, redis_url: str) -> Path:
    """A project as `startproject` makes it, changed as the README says."""
    run(bare.python, "-m", "django", "startproject", "mysite", tmp_path, cwd=tmp_path)
    run(bare.python, "manage.py", "startapp", "shop", cwd=tmp_path)
    apps, delayq = settings()
    assert delayq.keys() == {"REDIS"}
    with open(tmp_path / "mysite" / "settings.py", "a") as file:
        # The URL in the README is that of a server which may not be here.
        file.write(f"\nINSTALLED_APPS += {[*apps, 'shop']!r}\nDELAYQ = { ({**delayq, 'REDIS': redis_url})!r}\n")
    (tmp_path / "shop" / "tasks.py").write_text(TASK + NOTE)
    return tmp_path


@contextmanager
def running(bare: BareEnvironment, command: str, *, cwd: Path) -> Iterator[None]:
    """Run a command of the README until the end of the block, then stop it as Ctrl-C does."""
    words = command.split()
    assert words[0] == "python"
    log = cwd / f"{words[2]}.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [bare.python, *words[1:]], cwd=cwd, env=own_environ(), stdout=output, stderr=output, start_new_session=True
        )
    try:
        until(lambda: " serves " in log.read_text(), what=command, details=log.read_text)
        yield
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0, log.read_text()
        assert "Traceback" not in log.read_text()
    finally:
        process.kill()
        process.wait()


def test_the_wheel_brings_what_it_requires_and_no_more(bare: BareEnvironment) -> None:
    own = {"django", "django-delayq", "django-redis", "redis"}
    assert bare.packages == own | {"asgiref", "sqlparse", "typing-extensions"}


def test_the_steps_of_the_readme_lead_to_a_job_that_runs(bare: BareEnvironment, project: Path) -> None:
    install, *commands = COMMANDS
    assert install == "pip install django-delayq"
    # It is there already: the wheel of this checkout, and not one that an index might have.
    bare.install(*install.split()[2:], PIP_NO_INDEX="1")
    where = run(bare.python, "-c", "import django_delayq; print(django_delayq.__file__)", cwd=project)
    assert Path(where.strip()).is_relative_to(bare.folder)
    run(bare.python, "manage.py", "check", cwd=project)
    assert [command.split()[:3] for command in commands] == [
        ["python", "manage.py", "run_dispatcher"],
        ["python", "manage.py", "run_worker"],
    ]
    ran = project / "ran"
    program = ENQUEUE.format(call=CALL, path=str(ran), patience=PATIENCE)
    with running(bare, commands[0], cwd=project), running(bare, commands[1], cwd=project):
        run(bare.python, "manage.py", "shell", "-c", program, cwd=project)
        until(ran.exists, what="the job")
        assert "Alive" in run(bare.python, "manage.py", "delayq_check", "--alive", cwd=project)


def test_the_pages_of_the_admin_have_their_files(bare: BareEnvironment, project: Path) -> None:
    run(bare.python, "manage.py", "migrate", cwd=project)
    program = """
from django.contrib.auth.models import User
from django.contrib.staticfiles.finders import find
from django.test import Client
client = Client(headers={"accept-language": "de"}, SERVER_NAME="localhost")
client.force_login(User.objects.create_superuser("ann"))
page = client.get("/admin/django_delayq/queue/", follow=True)
assert page.status_code == 200, page.status_code
for name in ("delayq.css", "delayq.js"):
    assert f"django_delayq/{name}" in page.text and find(f"django_delayq/{name}"), name
"""
    run(bare.python, "manage.py", "shell", "-c", program, cwd=project)
