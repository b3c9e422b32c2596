"""How arguments are displayed, and which values are hidden."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ValidationError

from django_delayq.admin.actions.forms import ArgumentsField
from django_delayq.display.arguments import DisplayedArguments
from django_delayq.display.text import printable
from django_delayq.job.ids import next_id
from django_delayq.job.job import Job
from django_delayq.task.decorator import delayed_task
from tests.admin.jobs import HOSTILE

HIDE = re.compile("token|card", re.IGNORECASE)


def send(invoice: int, api_token: str, lang: str = "en", *card_numbers: int, **options: Any) -> None: ...


def pay(amount: int, iban: str) -> None: ...


def plain(number: int) -> None: ...


def secret(*args: Any, **kwargs: Any) -> None: ...


@pytest.fixture(autouse=True)
def _tasks(registered: Any) -> Iterator[None]:
    registered({})
    delayed_task(name="shop.send")(send)
    delayed_task(name="shop.pay", sensitive=("iban",))(pay)
    delayed_task(name="shop.plain")(plain)
    delayed_task(name="shop.secret", sensitive=True)(secret)
    yield


def payload(task: str, *args: Any, reveal: bool = False, **kwargs: Any) -> DisplayedArguments:
    job = Job(raw_id=next_id(), shard=0, task=task, queue="q", args=list(args), kwargs=kwargs)
    return DisplayedArguments.of(job, HIDE, reveal=reveal)


def test_a_call_is_one_line_as_python_writes_it() -> None:
    shown = payload("shop.pay", 42, iban="x", reveal=True)
    assert shown.line() == "pay(42, iban='x')"
    assert payload("shop.send", 1, "t", "de", lang2={"a": [1, None, True]}).line() == (
        "send(1, •••, 'de', lang2={'a': [1, None, True]})"
    )


def test_a_parameter_is_hidden_by_its_name_however_it_was_passed() -> None:
    assert payload("shop.send", 1, "t").line() == "send(1, •••)"
    assert payload("shop.send", 1, api_token="t").line() == "send(1, api_token=•••)"
    assert payload("shop.send", 1, "t", "de", 4111, 4222).line() == "send(1, •••, 'de', •••, •••)"


def test_a_name_is_hidden_at_any_depth() -> None:
    deep = {"user": [{"Card": "4111", "name": "ann", "more": {"tokens": [1], "x": 2}}]}
    assert payload("shop.send", deep, "t").line() == (
        "send({'user': [{'Card': •••, 'name': 'ann', 'more': {'tokens': •••, 'x': 2}}]}, •••)"
    )


def test_sensitive_parameters_are_hidden() -> None:
    assert payload("shop.pay", 5, "DE89").line() == "pay(5, •••)"
    assert payload("shop.pay", amount=5, iban="DE89").line() == "pay(amount=5, iban=•••)"
    assert payload("shop.secret", 5, a=6).line() == "secret(•••, a=•••)"


def test_all_arguments_of_an_unknown_task_are_hidden() -> None:
    assert payload("old.removed", 5, {"a": 1}, b="x").line() == "removed(•••, •••, b=•••)"


def test_all_arguments_are_hidden_if_they_no_longer_fit() -> None:
    assert payload("shop.pay", 5, "DE89", "more").line() == "pay(•••, •••, •••)"
    assert payload("shop.plain", 5).line() == "plain(5)"
    assert payload("shop.plain", 5, "was the card's number").line() == "plain(•••, •••)"
    assert payload("shop.send").line() == "send()"
    assert payload("shop.send", lang="de").line() == "send(lang=•••)"


def test_a_value_that_looks_like_a_hidden_one_is_not_one() -> None:
    shown = payload("shop.pay", "********", "DE89")
    assert shown.line() == "pay('********', •••)"
    assert shown.hidden
    assert not payload("shop.send", "•••", reveal=True).hidden


def test_nothing_is_hidden_from_whoever_may_see_it() -> None:
    assert payload("old.removed", 5, token="t", reveal=True).line() == "removed(5, token='t')"


def test_a_line_is_truncated_without_formatting_the_rest() -> None:
    line = payload("shop.send", "x" * 1_000_000, "t", lang={"deep": ["y" * 1_000_000] * 100}).line()
    assert len(line) == 200
    assert line.endswith("…")
    assert payload("shop.send", ["a"] * 100_000, "t").line().count("'a'") < 50


def test_a_line_of_exactly_the_limit_is_not_truncated() -> None:
    job = "send('{}', •••)"
    text = "x" * (200 - len(job.format("")))
    assert payload("shop.send", text, "t").line() == job.format(text)


def test_no_character_changes_the_layout() -> None:
    line = payload(f"shop.{HOSTILE}", HOSTILE, reveal=True, **{HOSTILE: HOSTILE}).line(None)
    assert line.isprintable()
    assert "\\u202e" in line
    assert printable("a\nb\tc\x00", lines=True) == "a\nb\tc\\x00"
    assert printable("a\nb") == "a\\nb"


def test_arguments_are_listed_by_name() -> None:
    shown, cut = payload("shop.send", 7, "t", options=[1]).arguments()
    assert [(each.name, each.text, each.hidden) for each in shown] == [
        ("invoice", "7", False),
        ("api_token", "•••", True),
        ("options", "[\n  1\n]", False),
    ]
    assert not cut


def test_long_arguments_are_truncated_unless_all_are_requested() -> None:
    long = payload("shop.send", "x" * 20_000, "t", "de")
    shown, cut = long.arguments()
    assert cut
    assert len(shown) == 1
    assert len(shown[0].text) == 8 * 1024
    shown, cut = long.arguments(None)
    assert not cut
    assert len(shown) == 3
    assert len(shown[0].text) == 20_002


def test_json_hides_the_same_values() -> None:
    assert json.loads(payload("shop.pay", 5, iban="DE89").json()) == {"args": [5], "kwargs": {"iban": "•••"}}


@pytest.mark.parametrize("text", ["", "{", "[" * 200_000, "nul", "1" * 5_000, "{}", '"x"', "\x00", "[1] 2"])
def test_text_that_is_not_a_json_list_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValidationError):
        ArgumentsField(list).clean(text)


def test_edited_arguments_are_read() -> None:
    assert ArgumentsField(list).clean(' [1, {"a": null}]') == [1, {"a": None}]
    assert ArgumentsField(dict).clean('{"a": "é"}') == {"a": "é"}
