"""Middlewares around a run: in threads and in an event loop, for plain and async functions, in every combination."""

import asyncio
import threading
from collections.abc import Callable
from contextvars import Context
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from django_delayq import DeadLetterNow, RetryPolicy, Snooze, current_job
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.job import Claim
from django_delayq.job.outcome import Outcome, OutcomeKind
from django_delayq.task import registry
from django_delayq.task.task import Task
from django_delayq.testing import DelayQ
from django_delayq.worker.execution import run, run_async
from tests.integration.middleware import classes
from tests.integration.worker.execution.claims import SUSPECT, claim_of, spin
from tests.shard_apis import NINE

Middleware = Callable[..., None]
Run = Callable[..., Outcome]
CONTEXT = {"request_id": "7f3a"}


def in_thread(claim: Claim) -> Outcome:
    """Run a claim as the threads of a worker do."""
    return run(claim)


def in_loop(claim: Claim) -> Outcome:
    """Run a claim as the loop of a worker does; anything that blocks the loop fails."""

    async def main() -> Outcome:
        loop = asyncio.get_running_loop()
        loop.set_debug(True)
        loop.slow_callback_duration = 60.0
        return await asyncio.Task(run_async(claim), loop=loop, context=Context())

    return asyncio.run(main())


@pytest.fixture(
    params=[(in_thread, "plain"), (in_thread, "async"), (in_loop, "async")],
    ids=lambda way: f"{way[0].__name__}-{way[1]}",
)
def run_task(request: pytest.FixtureRequest, registered: Any) -> Run:
    """Run a function as a task, plain in a thread, async in a thread, and async in a loop."""
    registered()
    run_claim, kind = request.param

    def run_function(func: Any, *args: Any, **facts: Any) -> Outcome:
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            await asyncio.sleep(0)
            return func(*args, **kwargs)

        task: Task[Any, Any] = Task(func=func if kind == "plain" else coroutine, name="shop.tasks.play")
        registry._tasks[task.name] = task
        return run_claim(claim_of(task.name, *args, **facts))  # type: ignore[no-any-return]

    return run_function


ORDERS = [
    ("RequestId",),
    ("AsyncRequestId",),
    ("Inner", "RequestId"),
    ("Outer", "AsyncRequestId"),
    ("AsyncRequestId", "Outer"),
    ("Around", "AroundNothing"),
    ("Outer", "Around"),
]


@pytest.mark.parametrize("names", ORDERS, ids=" ".join)
def test_what_a_middleware_sets_is_there_in_the_task(middleware: Middleware, run_task: Run, names: Any) -> None:
    seen: list[Any] = []

    def func(number: int) -> str:
        job = current_job()
        assert job
        seen.append((number, classes.request_id.get(), job.context))
        return "returned"

    middleware(*names)
    outcome = run_task(func, 7, context=CONTEXT, result_ttl_us=1_000_000)
    assert outcome.kind is OutcomeKind.SUCCEEDED, outcome.error
    assert outcome.result == '"returned"'
    assert seen == [(7, "7f3a", CONTEXT)]
    assert classes.request_id.get() == "none", "each run has a context of its own"


@pytest.mark.parametrize("names", ORDERS, ids=" ".join)
def test_an_exception_is_that_of_the_attempt(middleware: Middleware, run_task: Run, names: Any) -> None:
    def func() -> None:
        raise ValueError("of the task")

    middleware(*names)
    outcome = run_task(func, context=CONTEXT)
    assert (outcome.kind, outcome.exception) == (OutcomeKind.FAILED, "builtins.ValueError")
    assert "of the task" in outcome.error


def test_an_exception_of_a_middleware_is_that_of_the_attempt(middleware: Middleware, run_task: Run) -> None:
    ran: list[int] = []
    middleware("Outer", "Refusing")
    classes.Refusing.at_run = TypeError("of the middleware")
    outcome = run_task(ran.append, 1)
    assert (outcome.kind, outcome.exception) == (OutcomeKind.FAILED, "builtins.TypeError")
    assert ran == [] and classes.seen == ["Outer made", "Outer run", "Outer ran"]


def test_the_outermost_is_called_first(middleware: Middleware, run_task: Run) -> None:
    middleware("Outer", "Inner")
    run_task(lambda: classes.seen.append("task"))
    assert classes.seen == ["Outer made", "Outer run", "Inner run", "task", "Outer ran"]


@pytest.mark.parametrize("is_async", [False, True], ids=["plain check", "async check"])
@pytest.mark.parametrize("run_claim", [in_thread, in_loop], ids=["thread", "loop"])
@pytest.mark.parametrize("name", ["RequestId", "AsyncRequestId"])
def test_already_done_is_called_inside_the_middlewares(
    middleware: Middleware, registered: Any, run_claim: Any, name: str, is_async: bool
) -> None:
    registered()
    seen: list[Any] = []

    def already_done(number: int) -> bool:
        seen.append((number, classes.request_id.get()))
        return number == 1

    async def already_done_async(number: int) -> bool:
        return already_done(number)

    async def func(number: int) -> None:
        seen.append("ran")

    middleware(name)
    check: Any = already_done_async if is_async else already_done
    task: Task[Any, Any] = Task(func=func, name="shop.tasks.play", already_done=check)
    registry._tasks[task.name] = task
    for number in (1, 2):
        outcome = run_claim(claim_of(task.name, number, attempts=SUSPECT, context=CONTEXT))
        assert outcome.kind is OutcomeKind.SUCCEEDED, outcome.error
    assert seen == [(1, "7f3a"), (2, "7f3a"), "ran"]


def test_the_block_of_the_base_class_surrounds_the_run(middleware: Middleware, run_task: Run) -> None:
    def func() -> None:
        classes.seen.append("task")
        raise ValueError

    middleware("Around")
    assert run_task(func).exception == "builtins.ValueError"
    assert classes.seen == ["Around run", "task", "Around ran"]


def test_a_middleware_may_run_the_task_not_at_all_and_change_its_result(middleware: Middleware, run_task: Run) -> None:
    ran: list[int] = []
    middleware("Calling")
    classes.Calling.run_by = lambda next, job: "instead"
    assert run_task(ran.append, 1, result_ttl_us=1_000_000).result == '"instead"'
    assert ran == []


def test_a_middleware_sees_the_job_and_the_attempt(middleware: Middleware, run_task: Run) -> None:
    seen: list[Any] = []

    def look(next: Any, job: Any) -> Any:
        seen.append((job.task, job.queue, job.args, dict(job.kwargs), job.attempt, job.context))
        job.context["mine"] = 1
        return next.run(job)

    middleware("Calling")
    classes.Calling.run_by = look
    contexts: list[Any] = []
    context = dict(CONTEXT)

    def func(number: int, *, fast: bool) -> None:
        contexts.append(current_job().context)  # type: ignore[union-attr]

    outcome = run_task(func, 1, kwargs={"fast": True}, attempts=AttemptHistory(ended=2), context=context)
    assert outcome.kind is OutcomeKind.SUCCEEDED, outcome.error
    assert seen == [("shop.tasks.play", "mail", (1,), {"fast": True}, 3, {**CONTEXT, "mine": 1})]
    assert contexts == [CONTEXT], "what travels in the job does not change"


async def sleep_long() -> None:
    await asyncio.sleep(3_600)


@pytest.mark.parametrize(
    ("run_claim", "func"),
    [(in_thread, spin), (in_thread, sleep_long), (in_loop, sleep_long)],
    ids=lambda func: func.__name__,
)
def test_the_soft_limit_is_that_of_the_task_inside_the_middlewares(
    middleware: Middleware, registered: Any, run_claim: Any, func: Any
) -> None:
    registered()
    middleware("Outer")
    task: Task[Any, Any] = Task(func=func, name="shop.tasks.play")
    registry._tasks[task.name] = task
    outcome = run_claim(claim_of(task.name, timeout_us=50_000))
    assert outcome.exception == "django_delayq.exceptions.TaskTimeout"
    assert classes.seen == ["Outer made", "Outer run", "Outer ran"]


def test_the_thread_of_a_plain_middleware_is_that_of_the_database(
    middleware: Middleware, registered: Any, transactional_db: None
) -> None:
    """Inside a loop, what a plain middleware does to a connection holds for the queries of the coroutine."""
    registered()
    threads: list[Any] = []

    def look(next: Any, job: Any) -> Any:
        threads.append(connection)
        with connection.cursor() as cursor:
            cursor.execute("CREATE TEMPORARY TABLE tenant (name text)")
        return next.run(job)

    def query() -> Any:
        with connection.cursor() as cursor:
            return list(cursor.execute("SELECT count(*) FROM tenant").fetchone())

    async def func() -> Any:
        return await sync_to_async(query)()

    middleware("Calling")
    classes.Calling.run_by = look
    task: Task[Any, Any] = Task(func=func, name="shop.tasks.play")
    registry._tasks[task.name] = task
    outcome = in_loop(claim_of(task.name, result_ttl_us=1_000_000))
    assert outcome.result == "[0]", outcome.error


def test_a_plain_function_runs_in_the_thread_of_its_job_under_an_async_middleware(
    middleware: Middleware, registered: Any
) -> None:
    registered()
    threads: list[int] = []
    middleware("Outer", "AsyncRequestId")
    task: Task[Any, Any] = Task(func=lambda: threads.append(threading.get_ident()), name="shop.tasks.play")
    registry._tasks[task.name] = task
    assert run(claim_of(task.name, context=CONTEXT)).kind is OutcomeKind.SUCCEEDED
    assert threads == [threading.get_ident()]


def test_a_plain_middleware_does_not_block_the_loop(middleware: Middleware, registered: Any) -> None:
    registered()
    both = asyncio.Barrier(2)

    async def func() -> None:
        # Passes only if the two jobs are in it at once.
        await both.wait()

    async def main() -> list[Outcome]:
        claims = [claim_of(task.name, context=CONTEXT) for _ in range(2)]
        return await asyncio.wait_for(asyncio.gather(*map(run_async, claims)), 30)

    middleware("Outer", "RequestId")
    task: Task[Any, Any] = Task(func=func, name="shop.tasks.play")
    registry._tasks[task.name] = task
    assert [outcome.kind for outcome in asyncio.run(main())] == [OutcomeKind.SUCCEEDED] * 2


def test_the_test_helpers_pass_through(middleware: Middleware, registered: Any, delayq: DelayQ) -> None:
    registered()
    ran: list[Any] = []
    task: Task[Any, Any] = Task(
        func=lambda number: ran.append((number, classes.request_id.get())),
        name="shop.tasks.play",
        retry=RetryPolicy(max_attempts=1),
    )
    registry._tasks[task.name] = task
    middleware("Outer", "RequestId")
    classes.request_id.set("7f3a")
    task.enqueue(1)
    [job] = delayq.enqueued
    assert job.context == {"request_id": "7f3a"}
    delayq.run_due()
    assert ran == [(1, "7f3a")]
    assert classes.seen == ["Outer made", "Outer enqueue", "Outer enqueued", "Outer run", "Outer ran"]


def test_a_middleware_sees_the_schedule_of_a_job_and_what_follows_an_exception(
    middleware: Middleware, delayq: DelayQ, registered: Any
) -> None:
    registered()
    middleware("Calling")
    seen: list[Any] = []

    def see(job: Any) -> None:
        found = job.find_schedule()
        follows = [job.will_retry(error) for error in (ValueError(), DeadLetterNow(), Snooze(5))]
        seen.append((job.schedule, job.occurrence, found and found.rule.text, follows))

    def enqueue(next: Any, job: Any) -> Any:
        see(job)
        return next.enqueue(job)

    def run_by(next: Any, job: Any) -> Any:
        see(job)
        return next.run(job)

    classes.Calling.enqueue_by, classes.Calling.run_by = enqueue, run_by
    task: Task[Any, Any] = Task(func=lambda: None, name="shop.tasks.play", retry=RetryPolicy(max_attempts=2))
    registry._tasks[task.name] = task
    delayq.advance_to(NINE)
    task.schedules.set("hourly", every=3_600)
    task.enqueue()
    nothing = (None, None, None, [False, False, False])
    assert seen == [nothing, nothing]
    delayq.run_due()
    # To ask about an exception is no failure of the task, which would be raised here.
    delayq.advance(hours=1)
    delayq.run_due()
    follows = [True, False, True]
    assert seen[2:] == [
        (None, None, None, follows),
        ("hourly", NINE + timedelta(hours=1), "every 3600 from 0", follows),
    ]
    hourly = task.schedules.get("hourly")
    assert hourly
    hourly.run_now()
    delayq.run_due()
    assert seen[-1] == ("hourly", None, "every 3600 from 0", follows)
