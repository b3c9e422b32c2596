"""Decorator: it refuses options that cannot work at import, not when a job fails."""

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.template import Context, Engine

from django_delayq import delayed_task
from django_delayq.task import registry


@pytest.fixture(autouse=True)
def own_registry(registered: Any) -> None:
    """Undo at the end of a test what it registered."""
    registered()


def remind(number: int = 0) -> None:
    """Serve as the function to decorate."""


@pytest.mark.parametrize("wrong", [True, 1, "done", object()], ids=lambda value: type(value).__name__)
def test_already_done_must_be_a_function(wrong: Any) -> None:
    before = registry.names()
    with pytest.raises(TypeError, match="already_done must be a"):
        delayed_task(already_done=wrong)(remind)
    assert registry.names() == before


@pytest.mark.parametrize(
    "name", ["", 5, b"shop.remind", ["shop.remind"], object()], ids=lambda value: type(value).__name__
)
def test_a_name_must_be_text(name: Any) -> None:
    before = registry.names()
    with pytest.raises(ValueError, match="name must be a non-empty string"):
        delayed_task(name=name)(remind)
    assert registry.names() == before


@pytest.mark.parametrize(
    "aliases", ["shop.old", [5], ["shop.old", None], [""], 5, {"shop.old": 1}], ids=lambda value: type(value).__name__
)
def test_aliases_must_be_a_list_of_text(aliases: Any) -> None:
    before = registry.names()
    with pytest.raises(ValueError, match="aliases must be a list or tuple of names"):
        delayed_task(aliases=aliases)(remind)
    assert registry.names() == before


def test_a_function_of_main_needs_a_name() -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("def remind(): pass", namespace)
    before = registry.names()
    with pytest.raises(ImproperlyConfigured, match="__main__.*name="):
        delayed_task(namespace["remind"])
    assert registry.names() == before
    named = delayed_task(name="shop.remind")(namespace["remind"])
    assert registry.get("shop.remind") is named


def test_valid_options_are_accepted() -> None:
    task = delayed_task(name="shop.remind", aliases=("shop.old",), already_done=lambda number=0: True)(remind)
    assert registry.get("shop.old") is registry.get("shop.remind") is task


RAN: list[str] = []


def record_run() -> str:
    RAN.append("ran")
    return "what it returned"


def test_a_template_that_names_a_task_does_not_run_it() -> None:
    RAN.clear()
    template = Engine().from_string("{{ task.name }} {{ task }}{% if task %} is there{% endif %}")
    text = template.render(Context({"task": delayed_task(record_run)}))
    assert "record_run" in text
    assert text.endswith("is there")
    assert RAN == []
