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


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("bind", r"current_job\(\) has the id"),
        ("autoretry_for", r"write retry=RetryPolicy\(retry_on=…\)"),
        ("acks_late", "leave it out: every job is acknowledged after its run"),
        ("max_retries", "max_attempts=….*counts the first attempt too"),
        ("default_retry_delay", r"write retry=RetryPolicy\(delays="),
        ("ignore_result", "leave it out: .* store_result=True"),
        ("rate_limit", r"write limit=…, and the rate in DELAYQ\['LIMITS'\]"),
        ("time_limit", "write hard_timeout="),
        ("soft_time_limit", "write timeout="),
        ("queue_name", "write queue="),
        ("jitter", r"recurring=\[Recurring\(…\)\]"),
        ("countdown", r"task\.using\(delay=60\)\.enqueue"),
    ],
)
def test_an_option_of_another_task_queue_says_what_to_write(option: str, words: str) -> None:
    before = registry.names()
    with pytest.raises(TypeError, match=f"@delayed_task has no option '{option}': .*{words}"):
        delayed_task(**{option: 1})(remind)  # type: ignore[call-overload]
    assert registry.names() == before


@pytest.mark.parametrize(("option", "right"), [("priorty", "priority"), ("retry_dealy", "retry_delay")])
def test_an_unknown_option_suggests_the_nearest_one(option: str, right: str) -> None:
    with pytest.raises(TypeError, match=rf"has no option '{option}' \(did you mean '{right}'\?\); it has queue, "):
        delayed_task(**{option: 1})  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("func", "words"),
    [
        (lambda: 5, r"<lambda>\(\): too many positional arguments"),
        (lambda attempt: 5, r"<lambda>\(attempt\): too many positional arguments"),
        (lambda attempt, error, more: 5, "missing a required argument: 'more'"),
        (lambda attempt, *, error: 5, "too many positional arguments"),
    ],
)
def test_a_retry_delay_must_take_an_attempt_and_an_exception(func: Any, words: str) -> None:
    before = registry.names()
    called = "retry_delay is called with the number of the failed attempt and its exception"
    with pytest.raises(ValueError, match=f"^{called}.*{words}"):
        delayed_task(retry_delay=func)(remind)
    assert registry.names() == before


class Waits:
    """Has an `__eq__`, so it has no hash."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __call__(self, attempt: int, error: BaseException) -> int:
        return attempt


@pytest.mark.parametrize(
    "func", [lambda attempt, error, more=1: 5, lambda *_: 5, Waits(), max], ids=["optional", "any", "object", "C"]
)
def test_a_retry_delay_that_takes_both_is_accepted(func: Any) -> None:
    assert delayed_task(retry_delay=func)(remind).retry_delay is func


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
