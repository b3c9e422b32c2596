"""Tasks made by Django's own `@task`, which tests enqueue and worker processes run."""

import asyncio
import datetime
import os
import sys
from pathlib import Path
from typing import Any

from django_delayq import RetryLater, RetryPolicy, limit
from tests.django_tasks.compat import task
from tests.sample_app.tasks import note


@task
def noop(*args: Any, **kwargs: Any) -> None:
    """Do nothing."""


@task
def echo(*args: Any, **kwargs: Any) -> list[Any]:
    """Return the arguments."""
    return [list(args), kwargs]


@task
def use_limit(name: str) -> int:
    """Take a slot of a limit and back off; return how many have one."""
    with limit(name):
        limit(name).back_off(30)
        return limit(name).counts()["running"]


@task
async def aecho(*args: Any, **kwargs: Any) -> list[Any]:
    """Return the arguments, from a coroutine."""
    await asyncio.sleep(0)
    return [list(args), kwargs]


@task
def add(a: int, b: int = 0) -> int:
    """Return a sum."""
    return a + b


@task
def use_up(items: list[Any], *, others: dict[str, Any]) -> str:
    """Change the arguments to values that are no JSON."""
    items.append(object())
    others["lock"] = object()
    return "used up"


@task
def fail(text: str = "as asked") -> None:
    """Raise."""
    try:
        raise KeyError("the cause")
    except KeyError as cause:
        raise ValueError(text) from cause


@task
def leave(code: int = 3) -> None:
    """Raise SystemExit."""
    sys.exit(code)


@task
def die() -> None:
    """End the process at once."""
    os._exit(9)


@task
def give(kind: str) -> Any:
    """Return a value that JSON has, does not have, or has only once it is normalised."""
    return {
        "tuple": (1, (2,)),
        "bytes": b"text",
        "binary": b"\xff",
        "set": {1},
        "moment": datetime.datetime(2026, 1, 1),
        "nan": float("nan"),
        "large": "x" * (9 * 1024 * 1024),
        "nothing": None,
        "kind": kind,
    }[kind]


@task(takes_context=True)
def describe(context: Any, *args: Any) -> dict[str, Any]:
    """Return the values of the context."""
    result = context.task_result
    return {
        "attempt": context.attempt,
        "id": result.id,
        "status": str(result.status),
        "args": result.args,
        "workers": result.worker_ids,
        "started_at": str(result.started_at),
        "priority": result.task.priority,
        "queue_name": result.task.queue_name,
        "run_after": str(result.task.run_after),
        "backend": result.task.backend,
        "given": list(args),
    }


@task(takes_context=True)
async def adescribe(context: Any) -> int:
    """Return the attempt, from a coroutine."""
    await asyncio.sleep(0)
    return int(context.attempt)


@task(takes_context=True)
def succeed_at(context: Any, attempt: int) -> int:
    """Request a retry until this attempt."""
    if context.attempt < attempt:
        raise RetryLater(0.01, f"attempt {context.attempt}")
    return int(context.attempt)


@task
def write_down(word: str) -> None:
    """Append the word to the ledger."""
    note(word)


@task
def wait_for(path: str) -> str:
    """Run until a file exists."""
    note("waits")
    while not Path(path).exists():
        pass
    return "seen"


@task
def fail_until(path: str) -> str:
    """Raise until a file exists."""
    if not Path(path).exists():
        raise ValueError("not yet")
    return "seen"


#: A retry policy for OPTIONS["TASKS"].
PATIENT = RetryPolicy(max_attempts=3, base=0.01, cap=0.02, on_error=True)
