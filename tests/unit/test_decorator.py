"""Decoration: options that could not work are refused where they are written, not when a job comes back."""

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.template import Context, Engine

from django_delayq import delayed_task
from django_delayq.task import registry


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test register what it likes."""
    monkeypatch.setattr(registry, "_tasks", dict(registry._tasks))


def remind(number: int = 0) -> None:
    """What is to be decorated."""


async def done_async(number: int = 0) -> bool:
    return False


@pytest.mark.parametrize("asked", [done_async, True, 1, "done", object()], ids=lambda given: type(given).__name__)
def test_already_done_must_be_a_plain_function(asked: Any) -> None:
    # Of an async one the coroutine is true, and the job would be acknowledged unrun.
    before = registry.names()
    with pytest.raises(TypeError, match="already_done must be a"):
        delayed_task(already_done=asked)(remind)
    assert registry.names() == before


@pytest.mark.parametrize(
    "name", ["", 5, b"shop.remind", ["shop.remind"], object()], ids=lambda given: type(given).__name__
)
def test_a_name_must_be_text(name: Any) -> None:
    before = registry.names()
    with pytest.raises(ValueError, match="name must be a non-empty string"):
        delayed_task(name=name)(remind)
    assert registry.names() == before


@pytest.mark.parametrize(
    "aliases", ["shop.old", [5], ["shop.old", None], [""], 5, {"shop.old": 1}], ids=lambda given: type(given).__name__
)
def test_aliases_must_be_a_list_of_text(aliases: Any) -> None:
    before = registry.names()
    with pytest.raises(ValueError, match="aliases must be a list or tuple of names"):
        delayed_task(aliases=aliases)(remind)
    assert registry.names() == before


def test_a_function_of_main_needs_a_name() -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec("def remind(): pass", space)
    before = registry.names()
    with pytest.raises(ImproperlyConfigured, match="__main__.*name="):
        delayed_task(space["remind"])
    assert registry.names() == before
    named = delayed_task(name="shop.remind")(space["remind"])
    assert registry.get("shop.remind") is named


def test_what_is_right_is_taken() -> None:
    task = delayed_task(name="shop.remind", aliases=("shop.old",), already_done=lambda number=0: True)(remind)
    assert registry.get("shop.old") is registry.get("shop.remind") is task


RAN: list[str] = []


def leave_a_trace() -> str:
    RAN.append("ran")
    return "what it returned"


def test_a_template_that_names_a_task_does_not_run_it() -> None:
    RAN.clear()
    template = Engine().from_string("{{ task.name }} {{ task }}{% if task %} is there{% endif %}")
    text = template.render(Context({"task": delayed_task(leave_a_trace)}))
    assert "leave_a_trace" in text
    assert text.endswith("is there")
    assert RAN == []
