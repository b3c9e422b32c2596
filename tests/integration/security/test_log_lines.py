"""Log lines: no name and no error, from a user or from Redis, can start a line of its own in a process's output."""

import logging
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from django_delayq import delayed_task, get_store
from django_delayq.job.retry import RetryPolicy
from django_delayq.signals import LogFormatter, keep_to_one_line
from django_delayq.store.claims import Claims
from tests.subprocesses import Processes

SEPARATORS = ["\n", "\r\n", "\r", "\x0b", "\x0c", "\x1b[2K\x1b[1G", "\x85", "\u2028", "\u2029", "\0", "\x9b", "\u202e"]
FORGED = "1999-01-01 00:00:00,000 ERROR Job forged"
EVIL = "".join(f"{separator}{FORGED}" for separator in ["\n", "\r", "\x1b[2K", "\u2028", "\x85"])
SHORT = f"\n{FORGED}\x1b[2K"
OURS = re.compile(
    r"(?!1999)\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR) (Job|Worker|Dispatcher|A receiver) .+"
    r"|(Worker|Dispatcher) \d+ serves .+"
)
MODULE = f"""
from django_delayq import DeadLetterNow, RetryLater, RetryPolicy, delayed_task
EVIL = {EVIL!r}
once, twice = RetryPolicy(max_attempts=1), RetryPolicy(max_attempts=2, base=0.01)

@delayed_task(name="fail" + EVIL, retry=twice)
def fail(): raise ValueError(EVIL)

@delayed_task(name="later" + EVIL, retry=twice)
def later(): raise RetryLater(0.01, EVIL)

@delayed_task(name="give up" + EVIL)
def give_up(): raise DeadLetterNow(EVIL)

@delayed_task(name="well" + EVIL)
def well(): pass
"""
RECEIVER = """
from django_delayq.signals import job_started
def broken(**_): raise RuntimeError(EVIL)
broken.__qualname__ = "broken" + EVIL
job_started.connect(broken, weak=False)
"""
LOGGING = """
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "ours": {
            "()": "django_delayq.signals.LogFormatter",
            "format": "%(asctime)s %(levelname)s %(message)s",
        }
    },
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "ours"}},
    "loggers": {"django_delayq": {"handlers": ["console"], "level": "DEBUG"}},
}
"""


@pytest.fixture
def evil_tasks(processes: Processes, task_module: Callable[[str, str], ModuleType]) -> ModuleType:
    """Tasks whose names and errors try to forge lines, here and in the processes."""
    made = task_module("evil_tasks", MODULE)
    # An unknown task is dead at once, and a job whose lease expires soon.
    processes.configure(UNKNOWN_TASK_TTL=0, LEASE=1)
    return made


def enqueue_all(tasks: Any) -> tuple[list[Any], Any]:
    """Enqueue jobs that become dead letters, and one that succeeds."""
    unknown = delayed_task(name=f"unknown{EVIL}", retry=RetryPolicy(max_attempts=1))(expire)
    long = delayed_task(name="x" * 60_000, retry=RetryPolicy(max_attempts=1))(expire)
    dying = [task.using(queue=f"q{SHORT}").enqueue() for task in (tasks.fail, tasks.later, tasks.give_up)]
    return [*dying, unknown.enqueue(), long.enqueue()], tasks.well.using(queue="\u202e\x9b31m").after(0.05).enqueue()


def expire() -> None:
    """Serve as the task that a worker with an evil name holds when it ends."""


def expiring_job() -> Any:
    """Enqueue a job and claim it as a worker with an evil name, which never settles it."""
    job = delayed_task(name="expiring", retry=RetryPolicy(max_attempts=1))(expire).using(queue="held").enqueue()
    store = get_store()
    claims = Claims(store.shards[0], worker_id=b"\xffevil\n\r\x1b")
    request = claims.prepare(queues=["held"], want=1, worker_name=f"host{EVIL}")
    assert len(claims.settle_and_claim(request).claims) == 1
    return job


def assert_ours(text: str) -> None:
    lines = text.split("\n")
    assert lines.pop() == ""
    for line in lines:
        assert line.isprintable() and len(line) < 5_000, line
        assert OURS.fullmatch(line) or line.startswith("    "), line


@pytest.mark.parametrize("receivers", [False, True], ids=["", "receivers that fail"])
def test_every_line_that_processes_print_has_the_format_of_a_log_line(
    receivers: bool, processes: Processes, evil_tasks: Any
) -> None:
    if receivers:
        # A traceback cannot fit on one line, so the formatter indents it.
        (processes.folder / "evil_tasks.py").write_text(MODULE + RECEIVER)
        with open(processes.folder / "process_settings.py", "a") as project:
            project.write(LOGGING)
    dying, well = enqueue_all(evil_tasks)
    expiring = expiring_job()
    commands = [processes.start(name, "-v", 2) for name in ("run_dispatcher", "run_worker")]
    for job in (*dying, expiring):
        processes.until_state(job, "dead")
    processes.until_gone([well])
    for command in commands:
        assert command.end() == 0
    printed = [command.log.read_bytes().decode() for command in commands]
    for text in printed:
        assert_ours(text)
    every = "".join(printed)
    assert every.count(r"\n1999-01-01") >= 10
    for part in (r"'fail\n", r"'later\n", r"'give up\n", r"'unknown\n", r"host\n1999", "xxx…", "lease expired"):
        assert part in every, part
    failed = every.count("A receiver of a signal failed")
    assert failed >= 6 if receivers else failed == 0


def record_of(message: str, *args: Any) -> logging.LogRecord:
    return logging.LogRecord("django_delayq", logging.INFO, __file__, 1, message, args, None)


@pytest.mark.parametrize("separator", SEPARATORS)
def test_any_sentence_is_kept_to_one_line(separator: str) -> None:
    evil = f"a{separator}{FORGED}"
    for record in (record_of("%s waits: %s", "worker", ValueError(evil)), record_of("%s", evil), record_of(evil)):
        keep_to_one_line(record)
        line = LogFormatter("%(message)s").format(record)
        assert line.isprintable() and len(line.splitlines()) == 1 and FORGED in line


def test_a_harmless_record_stays_as_it_is() -> None:
    record = record_of("Job %s of %r: %d %% ü", "1", "täsk", 5)
    keep_to_one_line(record)
    assert (record.msg, record.args) == ("Job %s of %r: %d %% ü", ("1", "täsk", 5))


def test_a_long_line_is_cut() -> None:
    for record in (record_of("%r and %s", "x" * 100_000, ValueError("y" * 100_000)), record_of("z\n" * 100_000)):
        keep_to_one_line(record)
        assert len(record.getMessage()) <= 4_000


def test_a_surrogate_can_be_printed() -> None:
    record = record_of("%s", "\ud800")
    keep_to_one_line(record)
    assert record.getMessage().encode() == rb"\ud800"


def test_every_logger_of_the_package_keeps_to_one_line() -> None:
    # A filter of a logger does not see records of loggers below it.
    known = {name for name in logging.Logger.manager.loggerDict if name.startswith("django_delayq")}
    # The second one exists only if the admin's pages were imported.
    assert {"django_delayq"} <= known <= {"django_delayq", "django_delayq.audit"}
    assert all(keep_to_one_line in logging.getLogger(name).filters for name in known)


def test_tracebacks_are_indented() -> None:
    try:
        raise ValueError(EVIL) from KeyError(EVIL)
    except ValueError as error:
        record = logging.LogRecord(
            "django_delayq", logging.ERROR, __file__, 1, "it failed", (), (type(error), error, error.__traceback__)
        )
    first, *rest = LogFormatter("%(message)s").format(record).split("\n")
    assert first == "it failed" and len(rest) > 5
    assert all(line.startswith("    ") and line.isprintable() for line in rest)
