"""Execution: whatever user code does, an Outcome comes back, and the next job finds a clean thread."""

import asyncio
import logging
import os
import pickle
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from types import ModuleType
from typing import Any

import pytest
from django.db import connections
from django.db.backends.sqlite3.base import DatabaseWrapper
from django.utils import timezone, translation
from redis import Redis

from django_delayq import DeadLetterNow, RetryLater, RetryPolicy, current_job, get_store
from django_delayq.clock import lease_time
from django_delayq.exceptions import BadBody, NewerBody, TaskTimeout
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.ids import next_id
from django_delayq.job.job import Claim, Job, State
from django_delayq.job.outcome import UNFIT_DELAY_US, Outcome, OutcomeKind, decide
from django_delayq.signals import job_started
from django_delayq.store.claims import Settlement
from django_delayq.task import registry
from django_delayq.task.task import Task
from django_delayq.worker.execution import run, run_async
from tests.factories import claim_for
from tests.sample_app.tasks import noop

Run = Callable[..., Outcome]
#: Far more than any of these tests needs; nothing is concluded from how long it took.
PATIENCE = 30.0
SUSPECT = AttemptHistory(ended=1, crash_suspected=True)


def claim_of(name: str, *args: Any, attempts: AttemptHistory | None = None, **facts: Any) -> Claim:
    """Return the claim of a job, as an exchange would bring it."""
    options = {"queue": "mail", **facts}
    job = Job(raw_id=next_id(), shard=0, task=name, args=list(args), **options)
    moments = {
        "rank": 100 * 2**45,
        "due_us": 1_893_456_000_123_000,
        "sent_at": lease_time(),
        "received_at": monotonic(),
    }
    return claim_for(job, attempts=attempts or AttemptHistory(), **moments)


@pytest.fixture
def run_task(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run a function as a task, in a thread as a worker has them, the same one for all tasks of a test.

    `run_task(func, *args, attempts=…, **options of the job)`; called in another thread than the test's, it runs there.
    """
    monkeypatch.setattr(registry, "_tasks", dict(registry._tasks))

    def play(func: Any, *args: Any, already_done: Any = None, **facts: Any) -> Outcome:
        task: Task[Any, Any] = Task(func=func, name="shop.tasks.play", already_done=already_done)
        registry._tasks[task.name] = task
        claim = claim_of(task.name, *args, **facts)
        if threading.current_thread() is not threading.main_thread():
            return run(claim)
        return worker.submit(run, claim).result(2 * PATIENCE)

    with ThreadPoolExecutor(1) as worker:
        yield play


def spin() -> None:
    give_up = monotonic() + PATIENCE
    while monotonic() < give_up:
        pass


def raises(error: BaseException) -> Callable[[], None]:
    def func() -> None:
        raise error

    return func


def test_success(run_task: Run) -> None:
    got: list[Any] = []
    outcome = run_task(lambda *args, **kwargs: got.append((args, kwargs)), 1, [2], kwargs={"a": None})
    assert (outcome.kind, outcome.error, outcome.delay_us) == (OutcomeKind.SUCCEEDED, "", None)
    assert outcome.run_us >= 0 and got == [((1, [2]), {"a": None})]


class BrokenText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no money"),
        SystemExit(3),
        GeneratorExit(),
        KeyboardInterrupt(),
        BaseException("base"),
        BaseExceptionGroup("several", [ValueError("a"), SystemExit()]),
        asyncio.CancelledError(),
        StopIteration(),
        TaskTimeout(),
        UnicodeEncodeError("ascii", "\ud800", 0, 1, "lone"),
        BrokenText(),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_whatever_a_task_raises_is_a_failure(error: BaseException, kind: str, run_task: Run) -> None:
    async def func() -> None:
        raise error

    outcome = run_task(raises(error) if kind == "sync" else func)
    assert outcome.kind is OutcomeKind.FAILED
    assert type(error).__name__ in outcome.error
    assert run_task(lambda: None).kind is OutcomeKind.SUCCEEDED, "the thread did not survive"
    outcome.error.encode("utf-8", "surrogatepass")


def test_the_traceback_leads_to_the_line(run_task: Run) -> None:
    outcome = run_task(raises(ValueError("no money")))
    assert Path(__file__).name in outcome.error and "ValueError: no money" in outcome.error


def test_a_long_error_is_capped_at_its_end(run_task: Run) -> None:
    outcome = run_task(raises(ValueError("x" * 1_000_000 + "the end")))
    assert len(outcome.error) <= 64 * 1024 and "the end" in outcome.error[-100:]


def test_endless_recursion_is_a_failure(run_task: Run) -> None:
    def deeper() -> None:
        deeper()

    assert "RecursionError" in run_task(deeper).error


@pytest.mark.parametrize(
    ("delay", "delay_us"), [(None, None), (0, 0), (1.5, 1_500_000), (timedelta(hours=1), 3_600_000_000)]
)
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_retry_later(delay: Any, delay_us: int | None, kind: str, run_task: Run) -> None:
    async def func() -> None:
        raise RetryLater(delay, "the bank is closed")

    outcome = run_task(raises(RetryLater(delay, "the bank is closed")) if kind == "sync" else func)
    assert (outcome.kind, outcome.delay_us, outcome.error) == (
        OutcomeKind.RETRY_REQUESTED,
        delay_us,
        "the bank is closed",
    )


@pytest.mark.parametrize("delay", ["5", -1, float("nan"), float("inf"), True, datetime.max])
def test_retry_later_with_no_delay_at_all_is_a_failure(delay: Any, run_task: Run) -> None:
    outcome = run_task(raises(RetryLater(delay)))
    assert outcome.kind is OutcomeKind.FAILED and "delay" in outcome.error


@pytest.mark.parametrize("kind", [RetryLater, DeadLetterNow])
def test_texts_of_tasks_run_no_code_of_theirs_later(run_task: Run, kind: Any) -> None:
    class Sly(str):
        def __str__(self) -> str:
            raise SystemExit

    class Asked(kind):  # type: ignore[misc]
        def __str__(self) -> str:
            return Sly("the bank is closed")

    outcome = run_task(raises(Asked(5)))
    assert (type(outcome.error), outcome.error) == (str, "the bank is closed")


@pytest.mark.parametrize("delay", [1e300, 10**30, timedelta.max])
def test_retry_later_beyond_max_delay_is_a_failure(delay: Any, run_task: Run) -> None:
    outcome = run_task(raises(RetryLater(delay)))
    assert outcome.kind is OutcomeKind.FAILED and "MAX_DELAY" in outcome.error


def test_dead_letter_now(run_task: Run) -> None:
    outcome = run_task(raises(DeadLetterNow("the user is gone")))
    assert (outcome.kind, outcome.error) == (OutcomeKind.REJECTED, "the user is gone")
    policy = RetryPolicy(max_attempts=1_000)
    assert decide(outcome, policy, attempt=1, jitter=0.5).action == "dead_letter"


def test_an_unknown_task_is_put_back() -> None:
    outcome = run(claim_of("shop.tasks.renamed"))
    assert outcome.kind is OutcomeKind.UNKNOWN_TASK and "'shop.tasks.renamed'" in outcome.error
    decision = decide(outcome, RetryPolicy(), attempt=1, jitter=0.5)
    assert (decision.action, decision.delay_us) == ("retry", UNFIT_DELAY_US)


class Lazy:
    """What stands in modules and asks its library before it answers, as Flask's `request` does."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("working outside of a request")


@pytest.mark.parametrize("name", ["lazy_module.request", "blocked_module.task", "no_module.task", "task", ".", ""])
def test_a_name_of_what_is_no_task_is_unknown_whatever_stands_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "blocked_module", None)
    module = ModuleType("lazy_module")
    vars(module)["request"] = Lazy()
    monkeypatch.setitem(sys.modules, "lazy_module", module)
    assert run(claim_of(name)).kind is OutcomeKind.UNKNOWN_TASK


def test_a_search_for_a_task_that_fails_is_the_attempts_end_and_not_the_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(name: str) -> None:
        raise RuntimeError("a finder's own fault")

    monkeypatch.setattr(registry, "finders", [fails])
    claim = claim_of("shop.tasks.renamed")
    for outcome in (run(claim), asyncio.run(run_async(claim))):
        assert outcome.kind is OutcomeKind.FAILED and "a finder's own fault" in outcome.error


def test_arguments_that_no_longer_fit_are_put_back(run_task: Run) -> None:
    def narrowed(user_id: int) -> None:
        raise AssertionError("must not run")

    for facts in ({"kwargs": {"name": "x"}}, {"kwargs": {"user_id": 1, "more": 2}}, {}):
        outcome = run_task(narrowed, **facts)
        assert outcome.kind is OutcomeKind.ARGUMENTS_MISMATCH and "shop.tasks.play" in outcome.error
    assert run_task(narrowed, 1, 2).kind is OutcomeKind.ARGUMENTS_MISMATCH


def test_a_type_error_of_the_task_itself_is_a_failure(run_task: Run) -> None:
    def wrong(value: int) -> None:
        len(value)  # type: ignore[arg-type]

    assert run_task(wrong, 1).kind is OutcomeKind.FAILED


def unread(fault: Exception) -> Claim:
    claim = claim_of("any")
    facts = {name: getattr(claim, name) for name in Claim.__slots__}
    return Claim(**{**facts, "job": None, "fault": fault})


def test_a_body_of_a_newer_release_is_put_back_and_a_damaged_one_is_not() -> None:
    newer, damaged = run(unread(NewerBody("format 2"))), run(unread(BadBody("its head does not end")))
    assert (newer.kind, newer.error) == (OutcomeKind.NEWER, "format 2")
    assert (damaged.kind, damaged.error) == (OutcomeKind.UNREADABLE, "its head does not end")


def test_current_job(run_task: Run) -> None:
    seen: list[Any] = []

    def func() -> None:
        job = current_job()
        assert job
        seen.append((job.id, job.attempt, job.recovered, job.due, job.queue, job.key))

    async def async_func() -> None:
        await asyncio.sleep(0)
        func()

    for body in (func, async_func):
        run_task(body)
        run_task(body, attempts=SUSPECT, queue="bulk", key="k")
        [(first_id, *first), (second_id, *second)] = seen
        moment = datetime(2030, 1, 1, 0, 0, 0, 123_000, tzinfo=UTC)
        assert first == [1, False, moment, "mail", None] and second == [2, True, moment, "bulk", "k"]
        assert first_id != second_id
        seen.clear()
    assert current_job() is None


def test_a_coroutine_function_runs_to_its_end(run_task: Run) -> None:
    seen: list[Any] = []

    async def func(value: int) -> None:
        await asyncio.sleep(0)
        seen.append(value)

    assert run_task(func, 5).kind is OutcomeKind.SUCCEEDED and seen == [5]


def test_a_task_over_its_timeout_fails(run_task: Run) -> None:
    outcome = run_task(spin, timeout_us=1_000)
    assert outcome.kind is OutcomeKind.FAILED and "TaskTimeout" in outcome.error
    assert run_task(lambda: None, timeout_us=1_000_000_000).kind is OutcomeKind.SUCCEEDED


def test_a_coroutine_over_its_timeout_fails(run_task: Run) -> None:
    cleaned: list[int] = []

    async def func() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append(1)

    outcome = run_task(func, timeout_us=1_000)
    assert outcome.kind is OutcomeKind.FAILED and "TaskTimeout" in outcome.error and cleaned == [1]


def test_a_timeout_error_of_the_coroutine_itself_is_its_own(run_task: Run) -> None:
    async def func() -> None:
        raise TimeoutError("the bank")

    outcome = run_task(func, timeout_us=1_000_000_000)
    assert "TaskTimeout" not in outcome.error and "TimeoutError: the bank" in outcome.error


def test_a_task_may_clean_up_after_its_timeout(run_task: Run) -> None:
    def func() -> None:
        try:
            spin()
        except TaskTimeout:
            raise RetryLater(5) from None

    outcome = run_task(func, timeout_us=1_000)
    assert (outcome.kind, outcome.delay_us) == (OutcomeKind.RETRY_REQUESTED, 5_000_000)


def test_a_timeout_never_hits_the_next_job(run_task: Run) -> None:
    for _ in range(100):
        assert run_task(spin, timeout_us=500).kind is OutcomeKind.FAILED
        assert run_task(lambda: sum(range(1_000))).kind is OutcomeKind.SUCCEEDED


variable: ContextVar[str] = ContextVar("variable", default="untouched")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_language_time_zone_and_context_start_fresh(kind: str, run_task: Run) -> None:
    seen: list[Any] = []

    def func() -> None:
        seen.append((variable.get(), translation.get_language(), timezone.get_current_timezone_name()))
        variable.set("touched")
        translation.activate("de")
        timezone.activate("Asia/Tokyo")

    async def async_func() -> None:
        func()

    mine = (variable.get(), translation.get_language(), timezone.get_current_timezone_name())
    for _ in range(2):
        assert run_task(func if kind == "sync" else async_func).kind is OutcomeKind.SUCCEEDED
    assert seen[0] == seen[1] and seen[0][0] == "untouched" and "Tokyo" not in seen[1][2]
    assert mine == (variable.get(), translation.get_language(), timezone.get_current_timezone_name())


@pytest.fixture
def in_worker_thread(tmp_path: Path, transactional_db: None) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Run a test's work in a thread whose `other` database is a file: one in memory is never closed."""

    def play(work: Callable[[], None]) -> None:
        raised: list[BaseException] = []

        def thread() -> None:
            settings = {
                **connections["other"].settings_dict,
                "NAME": str(tmp_path / "db.sqlite3"),
                "CONN_MAX_AGE": None,
            }
            connections["other"] = DatabaseWrapper(settings, "other")
            try:
                work()
            except BaseException as error:
                raised.append(error)
            finally:
                connections["other"].close()

        running = threading.Thread(target=thread)
        running.start()
        running.join(PATIENCE)
        assert not running.is_alive()
        if raised:
            raise raised[0]

    yield play


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_broken_database_connection_is_not_left_to_the_next_job(
    run_task: Run, in_worker_thread: Callable[[Callable[[], None]], None]
) -> None:
    def work() -> None:
        connection = connections["other"]

        def breaks() -> None:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
            # As after "server has gone away".
            connection.errors_occurred = True
            connection.is_usable = lambda: False

        assert run_task(breaks).kind is OutcomeKind.SUCCEEDED
        assert connection.connection is None
        del connection.is_usable

        def works() -> None:
            with connection.cursor() as cursor:
                assert cursor.execute("SELECT 1").fetchone() == (1,)

        assert run_task(works).kind is OutcomeKind.SUCCEEDED
        kept = connection.connection
        assert kept is not None, "a sound connection with CONN_MAX_AGE is kept"
        assert run_task(works).kind is OutcomeKind.SUCCEEDED
        assert connection.connection is kept

    in_worker_thread(work)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_connection_that_died_between_jobs_is_replaced_before_the_next(
    run_task: Run, in_worker_thread: Callable[[Callable[[], None]], None]
) -> None:
    def work() -> None:
        connection = connections["other"]
        connection.ensure_connection()
        died = connection.connection
        connection.errors_occurred = True
        connection.is_usable = lambda: False

        def works() -> None:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
            assert connection.connection is not died

        outcome = run_task(works)
        assert outcome.kind is OutcomeKind.SUCCEEDED, outcome.error

    in_worker_thread(work)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_connection_that_failed_while_it_was_set_up_is_not_left_to_the_next_job(
    run_task: Run, in_worker_thread: Callable[[Callable[[], None]], None]
) -> None:
    def work() -> None:
        connection = connections["other"]

        def set_up() -> None:
            raise sqlite3.OperationalError("server closed the connection unexpectedly")

        connection.init_connection_state, connection.is_usable = set_up, lambda: False

        def asks() -> None:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")

        # As when a server, or what stands in front of it, accepts the connection and ends right after.
        assert run_task(asks).kind is OutcomeKind.FAILED
        assert connection.connection is None

    in_worker_thread(work)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_connection_past_its_age_is_closed(
    run_task: Run, in_worker_thread: Callable[[Callable[[], None]], None]
) -> None:
    def work() -> None:
        connection = connections["other"]
        connection.settings_dict["CONN_MAX_AGE"] = 0

        def works() -> None:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")

        assert run_task(works).kind is OutcomeKind.SUCCEEDED
        assert connection.connection is None

    in_worker_thread(work)


def test_a_job_without_a_database_opens_no_connection(run_task: Run) -> None:
    seen: list[Any] = []

    def work() -> None:
        run_task(lambda: None)
        seen.append(connections.all(initialized_only=True))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(PATIENCE)
    assert seen == [[]]


def test_a_recovered_job_that_was_done_is_not_run_again(run_task: Run) -> None:
    ran: list[Any] = []
    asked: list[Any] = []

    def already_done(*args: Any, **kwargs: Any) -> bool:
        asked.append((args, kwargs))
        return True

    facts: dict[str, Any] = {"already_done": already_done, "kwargs": {"a": 1}}
    assert run_task(lambda *a, **k: ran.append(a), 7, attempts=SUSPECT, **facts).kind is OutcomeKind.SUCCEEDED
    assert (ran, asked) == ([], [((7,), {"a": 1})])
    for attempts in (AttemptHistory(), AttemptHistory(ended=1)):
        run_task(lambda *a, **k: ran.append(a), 7, attempts=attempts, **facts)
    assert len(ran) == 2 and len(asked) == 1
    facts["already_done"] = lambda *a, **k: False
    run_task(lambda *a, **k: ran.append(a), 7, attempts=SUSPECT, **facts)
    assert len(ran) == 3


def test_an_error_of_already_done_is_a_failure(run_task: Run) -> None:
    def already_done() -> bool:
        raise ValueError("cannot say")

    outcome = run_task(lambda: None, attempts=SUSPECT, already_done=already_done)
    assert outcome.kind is OutcomeKind.FAILED and "cannot say" in outcome.error


def test_a_broken_receiver_does_not_stop_the_job(run_task: Run, caplog: pytest.LogCaptureFixture) -> None:
    def broken(**_: Any) -> None:
        raise RuntimeError("receiver broke")

    job_started.connect(broken)
    try:
        with caplog.at_level(logging.ERROR):
            assert run_task(lambda: None).kind is OutcomeKind.SUCCEEDED
    finally:
        job_started.disconnect(broken)
    assert "receiver broke" in caplog.text


def test_a_receiver_that_exits_does_not_stop_the_job(run_task: Run, caplog: pytest.LogCaptureFixture) -> None:
    def leaves(**_: Any) -> None:
        sys.exit(3)

    job_started.connect(leaves)
    try:
        assert run_task(lambda: None).kind is OutcomeKind.SUCCEEDED
    finally:
        job_started.disconnect(leaves)
    assert "later receivers were not called" in caplog.text


def test_an_outcome_is_a_plain_value_whatever_was_raised(run_task: Run) -> None:
    outcome = run_task(raises(BrokenText()))
    assert pickle.loads(pickle.dumps(outcome)) == outcome


def test_an_unfit_job_waits_in_its_schedule_with_its_attempt_counted(delayq_settings: Any, client: Redis) -> None:
    handle = noop.enqueue(1)
    store = get_store()
    shard = store.shards[0]
    claims = store.claims(shard, worker_id=os.urandom(8))
    [claim] = claims.settle_and_claim(claims.prepare(queues=["default"], want=1)).claims
    tasks, registry._tasks = registry._tasks, {}
    try:
        outcome = run(claim)
    finally:
        registry._tasks = tasks
    decision = decide(outcome, noop.retry or RetryPolicy(), attempt=claim.attempt, jitter=0.5)
    attempts = claim.attempts.add(worker="w", started_us=1, ended_us=2, ending=outcome.kind, error=outcome.error)
    settled = Settlement(claim=claim, decision=decision, attempts=attempts)
    assert not claims.settle_and_claim(claims.prepare(queues=["default"], want=0, settlements=[settled])).lost
    assert handle.refresh().state is State.SCHEDULED and handle.due
    assert timedelta(seconds=20) < handle.due - datetime.now(UTC) <= timedelta(seconds=30)
    assert store.lookup(0).find(claim.raw_id).attempts.history[0]["ending"] == "unknown task"


# A forked process must have time limits of its own: the watching thread does not survive a fork.
FORKED = """
    import os
    from time import monotonic
    from django_delayq.exceptions import TaskTimeout
    from django_delayq.worker.time_limit import TimeLimit

    def spin():
        give_up = monotonic() + 20
        while monotonic() < give_up:
            pass

    def struck():
        try:
            with TimeLimit(1000):
                spin()
        except TaskTimeout:
            return 0
        return 1

    assert struck() == 0
    child = os.fork()
    if child == 0:
        os._exit(struck())
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_time_limits_hold_in_a_forked_process() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(FORKED)],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.stdout.strip() == "0", done.stderr
