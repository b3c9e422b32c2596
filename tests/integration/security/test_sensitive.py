"""Sensitive arguments: no process prints, stores or mails them outside the job's body."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from django.db import transaction

from django_delayq.task import registry
from tests.inspection import inspection
from tests.subprocesses import Processes

CANARY = "4111-canary"
MODULE = """
import logging, os
from django_delayq import RetryPolicy, current_job, delayed_task

twice = RetryPolicy(max_attempts=2, base=0.01, cap=0.01)

@delayed_task(sensitive=("card",), retry=twice)
def charge(user, card, shown="seen-by-all"):
    try:
        raise ValueError("no money")
    except ValueError:
        logging.getLogger("shop").exception("could not charge")
        raise

@delayed_task(sensitive=True, retry=twice)
async def charge_async(user, *cards, **options):
    try:
        raise ValueError("no money")
    except ValueError:
        logging.getLogger("shop").exception("could not charge")
        raise

@delayed_task(sensitive=True, retry=twice)
def crash(card):
    if current_job().attempt == 1:
        os._exit(9)
    raise ValueError("no money")

@delayed_task(sensitive=("card",), retry=RetryPolicy(max_attempts=1))
def changed(card, more): ...
"""
MAIL = """
DEBUG = False
ADMINS = [("a", "a@example.org")]
EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
EMAIL_FILE_PATH = {folder!r}
LOGGING = {{
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {{"ours": {{"()": "django_delayq.signals.LogFormatter", "format": "%(asctime)s %(message)s"}}}},
    "handlers": {{
        "mail": {{"class": "django.utils.log.AdminEmailHandler", "include_html": True}},
        "console": {{"class": "logging.StreamHandler", "formatter": "ours"}},
    }},
    "root": {{"handlers": ["mail", "console"], "level": "WARNING"}},
    "loggers": {{"django_delayq": {{"handlers": ["console"], "level": "DEBUG"}}}},
}}
"""


@pytest.fixture
def card_tasks(task_module: Callable[[str, str], ModuleType]) -> ModuleType:
    """Tasks with sensitive arguments, here and in the processes."""
    return task_module("card_tasks", MODULE)


def test_sensitive_arguments_are_in_the_body_and_nowhere_else(
    processes: Processes, card_tasks: ModuleType, tmp_path: Path
) -> None:
    mails = tmp_path / "mails"
    mails.mkdir()
    # Arguments that do not fit end the job at once, and the lease of a job that kills its worker expires soon.
    processes.configure(UNKNOWN_TASK_TTL=0, LEASE=1)
    with open(processes.folder / "process_settings.py", "a") as project:
        project.write(MAIL.format(folder=str(mails)))
    jobs = [
        card_tasks.charge.enqueue(1, CANARY),
        card_tasks.charge.after(0.05).enqueue(1, card={"number": CANARY}),
        card_tasks.charge_async.enqueue(1, CANARY, code=CANARY),
        card_tasks.crash.enqueue(CANARY),
        card_tasks.changed.enqueue(CANARY, more=1),
    ]
    # When the job runs, the function has other parameters.
    newer = MODULE.replace("def changed(card, more)", "def changed(card)")
    (processes.folder / "card_tasks.py").write_text(newer)
    commands = [processes.dispatcher(), processes.worker()]
    for job in jobs:
        processes.until(
            lambda job=job: _dead(processes, commands, job),  # type: ignore[misc]
            what=f"job {job.id} to be dead",
        )
    printed = "".join(command.output for command in commands)
    assert "no money" in printed and "could not charge" in printed
    assert CANARY not in printed

    # One file may hold several mails.
    mailed = "".join(path.read_text() for path in mails.iterdir())
    assert mailed.count("Subject:") >= 4
    assert "could not charge" in mailed and "seen-by-all" in mailed
    assert CANARY not in mailed

    for job in jobs:
        letter = inspection().dead_letter(bytes.fromhex(job.id.split("-")[0]))
        assert letter is not None and letter.job is not None
        assert CANARY in str((letter.job.args, letter.job.kwargs))
        assert CANARY not in repr(letter) + repr(letter.attempts) + str(letter.attempts.pack())
        task = registry.get(letter.job.task)
        assert CANARY not in str(task.redact_arguments(letter.job.args, letter.job.kwargs))


def _dead(processes: Processes, commands: list, job) -> bool:  # type: ignore[no-untyped-def, type-arg]
    """Return whether the job is dead; if it killed its worker, start another."""
    if not commands[-1].running:
        commands.append(processes.start("run_worker"))
    return bool(job.refresh().state == "dead")


@pytest.mark.django_db(transaction=True)
def test_a_job_that_waits_for_the_commit_shows_no_sensitive_arguments(
    processes: Processes, card_tasks: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    with transaction.atomic():
        handle = card_tasks.charge.enqueue(1, CANARY)
        assert CANARY not in f"{handle!r} {handle.draft!r} {handle.job!r}"
    assert handle.state == "ready"
    assert CANARY not in f"{handle.refresh()!r} {handle.job!r}" + "".join(capfd.readouterr())
