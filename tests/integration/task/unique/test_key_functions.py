"""Keys on the task: a function of the arguments computes them, checked when the task is declared."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from django_delayq import delayed_task, enqueue_many
from django_delayq.exceptions import KeyHeld
from django_delayq.task import registry
from django_delayq.testing import DelayQ


def ship(order_id: int, *, fast: bool = False, note: str = "") -> None:
    """Be declared as a task by a test."""


def collect(first: int, *rest: int, **facts: Any) -> None:
    """Take any arguments."""


def keys(delayq: DelayQ) -> list[str | None]:
    return sorted(job.key for job in delayq.enqueued if job.key is not None)


def test_the_key_is_computed_from_the_arguments_that_it_names(delayq: DelayQ) -> None:
    task = delayed_task(key=lambda order_id: f"order:{order_id}")(ship)
    first = task.enqueue(7)
    assert [task.enqueue(7, fast=True).id, task.enqueue(order_id=7).id] == [first.id] * 2
    assert not task.enqueue(7).created
    assert task.enqueue(8).created
    assert keys(delayq) == ["order:7", "order:8"]
    found = task.get_job(key="order:7")
    assert found is not None and found.id == first.id


def test_defaults_of_the_task_are_filled_in(delayq: DelayQ) -> None:
    task = delayed_task(key=lambda fast, order_id: f"{order_id}:{fast}")(ship)
    task.enqueue(1)
    task.enqueue(1, fast=False)
    task.enqueue(1, fast=True)
    assert keys(delayq) == ["1:False", "1:True"]


def test_a_function_may_take_all_arguments_and_values_of_its_own(delayq: DelayQ) -> None:
    task = delayed_task(key=lambda order_id, prefix="o", **rest: f"{prefix}{order_id}{sorted(rest)}")(ship)
    task.enqueue(1, note="x")
    assert keys(delayq) == ["o1['fast', 'note']"]


def test_arguments_without_a_parameter_are_found_by_their_names(delayq: DelayQ) -> None:
    task = delayed_task(key=lambda first, rest, shop: f"{first}:{list(rest)}:{shop}")(collect)
    task.enqueue(1, 2, 3, shop="north")
    assert keys(delayq) == ["1:[2, 3]:north"]
    with pytest.raises(TypeError) as caught:
        task.enqueue(1)
    assert caught.value.__notes__ == [f"This was raised by the key= function of {task.name}."]


def test_none_means_no_key(delayq: DelayQ) -> None:
    task = delayed_task(key=lambda order_id: None if order_id == 0 else "k", unique="reject")(ship)
    assert task.enqueue(0).id != task.enqueue(0).id
    task.enqueue(1)
    with pytest.raises(KeyHeld):
        task.enqueue(2)
    assert task.using(unique="keep").enqueue(2).created is False


def test_the_key_of_a_call_comes_first(delayq: DelayQ) -> None:
    task = delayed_task(key=lambda order_id: f"order:{order_id}")(ship)
    task.using(key="mine").enqueue(1)
    assert keys(delayq) == ["mine"]


def test_a_text_is_the_key_of_every_job(delayq: DelayQ) -> None:
    task = delayed_task(key="nightly")(ship)
    assert task.enqueue(2).id == task.enqueue(1).id
    assert keys(delayq) == ["nightly"]


def test_jobs_of_a_batch_have_keys_too(delayq: DelayQ) -> None:
    task = delayed_task(key=lambda order_id: f"order:{order_id}")(ship)
    handles = task.enqueue_many([(1,), (2,), (1,)])
    assert [handle.created for handle in handles] == [True, True, False]
    assert keys(delayq) == ["order:1", "order:2"]


def test_a_method_and_a_partial_work_too(delayq: DelayQ) -> None:
    class Keys:
        def of(self, order_id: int) -> str:
            return f"m{order_id}"

    def prefixed(prefix: str, order_id: int) -> str:
        return f"{prefix}{order_id}"

    for function in (Keys().of, partial(prefixed, "m")):
        with registry.override():
            assert delayed_task(key=function)(ship).enqueue(1).job.key == "m1"  # type: ignore[union-attr]


async def later(order_id: int) -> str:
    return "k"


REFUSED: dict[str, tuple[Any, type[Exception], str]] = {
    "unknown": (
        lambda order: "k",
        ValueError,
        "key is a function of 'order', .* no parameter of the task .did you mean 'order_id'",
    ),
    "starred": (lambda *args: "k", ValueError, "key is a function with the positional parameter 'args'"),
    "positional": (lambda order_id, /: "k", ValueError, "positional parameter 'order_id'; it is called by name"),
    "coroutine": (later, TypeError, "key must be a plain function, not async def"),
    "list": (["order_id"], TypeError, "key must be text, or a function of the task's arguments, got list"),
    "number": (5, TypeError, "key must be text, or a function of the task's arguments, got int"),
    "empty": ("", ValueError, "key must be 1 to 200 bytes of text, got 0"),
    "unreadable": (type, ValueError, "key (must be a function whose parameters|is a function)"),
}


@pytest.mark.parametrize(("key", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_a_key_that_cannot_work_is_refused_at_the_declaration(key: Any, error: type[Exception], words: str) -> None:
    before = registry.names()
    with pytest.raises(error, match=words):
        delayed_task(key=key)(ship)
    assert registry.names() == before


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (lambda order_id: order_id, "the key of .*test_key_functions.ship must be a string, got int"),
        (lambda order_id: b"k", "the key of .*ship must be a string, got bytes"),
        (lambda order_id: "é" * 101, "the key of .*ship must be 1 to 200 bytes of text, got 202"),
        (lambda order_id: "", "the key of .*ship must be 1 to 200 bytes of text, got 0"),
    ],
)
def test_a_key_that_is_no_text_is_refused_at_the_enqueue(delayq: DelayQ, key: Callable[..., Any], words: str) -> None:
    task = delayed_task(key=key)(ship)
    for act in (lambda: task.enqueue(1), lambda: task.job(1), lambda: task.enqueue_many([(1,)])):
        with pytest.raises(ValueError, match=words):
            act()
    assert delayq.enqueued == []


def test_wrong_arguments_are_named_before_the_key_is_computed(delayq: DelayQ) -> None:
    task = delayed_task(key=lambda order_id: f"order:{order_id}")(ship)
    with pytest.raises(TypeError, match="missing a required argument: 'order_id'"):
        task.enqueue()  # type: ignore[call-arg]
    assert delayq.enqueued == []


def test_a_key_function_that_finds_nothing_loses_no_job_without_a_word(delayq: DelayQ) -> None:
    task = delayed_task(key=lambda order_id: str(next(each for each in (1, 3) if each == order_id)))(ship)
    numbers = [(1,), (2,), (3,)]
    for act in (
        lambda: task.enqueue(2),
        lambda: task.enqueue_many(numbers),
        lambda: task.enqueue_many(iter(numbers), on_progress=lambda accepted: None),
        lambda: enqueue_many(map(task.job, (1, 2, 3))),
        lambda: asyncio.run(task.aenqueue(2)),
        lambda: asyncio.run(task.aenqueue_many(numbers)),
    ):
        with pytest.raises(RuntimeError, match=f"key= function of {task.name}.*StopIteration"):
            act()
