"""Validators: what they accept, what their errors show, and that one field is a whole setting."""

from argparse import ArgumentParser
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.core.management.base import CommandError

from django_delayq.clock import DAY_US, HOUR_US, SECOND_US
from django_delayq.conf.config import WorkerConfig
from django_delayq.conf.queue_options import QUEUES
from django_delayq.conf.validators import (
    boolean,
    classes,
    dict_of,
    duration,
    duration_text,
    integer,
    modules,
    pattern,
    prefix,
    secrets,
    setting,
    settings_of,
)
from django_delayq.management import starting

BOUNDED = duration(minimum_us=SECOND_US, maximum_us=HOUR_US)


@dataclass(frozen=True, kw_only=True)
class Part(WorkerConfig):
    """The settings of a worker, and a new one."""

    patience_us: int = setting(5 * SECOND_US, BOUNDED, "How patient it is.", option=True)


def test_one_field_is_a_setting_and_an_option_of_the_worker() -> None:
    assert settings_of(Part)["PATIENCE"].default == 5 * SECOND_US
    assert dict_of(Part)("PART", {"PATIENCE": timedelta(minutes=1)}).patience_us == 60 * SECOND_US
    parser = ArgumentParser()
    starting.add_setting_options(parser, Part)  # type: ignore[arg-type]
    assert "How patient it is. Default: DELAYQ['PATIENCE']." in " ".join(parser.format_help().split())
    options = vars(parser.parse_args(["--patience", "3"]))
    assert starting.with_options(Part(), options) == Part(patience_us=3 * SECOND_US)
    with pytest.raises(CommandError, match="--patience must be a number of seconds or a timedelta, at least 1 s"):
        starting.with_options(Part(), {**options, "patience": 0})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"PATIENCE": 0}, r"^PART\['PATIENCE'\] must be .* at least 1 s, at most 1 hour, got 0$"),
        ({"PATEINCE": 1}, r"^PART has the unknown key 'PATEINCE' \(did you mean 'PATIENCE'\?\)$"),
        ([], f"^PART must be a dict of {', '.join(settings_of(Part))}, got list$"),
    ],
)
def test_a_wrong_dict_is_an_error_that_names_the_key(given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        dict_of(Part)("PART", given)


@pytest.mark.parametrize("validate", [boolean, BOUNDED, integer(1, 5, of="bytes")])
@pytest.mark.parametrize("value", ["s3cret", b"s3cret", ["s3cret"], {"password": "s3cret"}])
def test_text_is_not_shown_by_a_setting_that_takes_none(validate: Any, value: Any) -> None:
    # SECRET_KEY as the value of SIGN, for example.
    with pytest.raises(ValueError, match=f"SIGN must be .*, got {type(value).__name__}$") as caught:
        validate("SIGN", value)
    assert "s3cret" not in repr(caught.value) and caught.value.__context__ is None


def test_text_is_shown_by_a_setting_that_takes_text() -> None:
    with pytest.raises(ValueError, match="without braces, wildcards or spaces, got 'a b'"):
        prefix("PREFIX", "a b")


@pytest.mark.parametrize(
    ("validate", "value", "words"),
    [
        (pattern, "api|(key", r"a regular expression \(missing \), .* at position 4\), got 'api\|\(key'$"),
        (QUEUES, {"mail": {}, 7: {}}, r"^the name 7 in SETTING must be a string, got int$"),
        (QUEUES, {"x" * 201: {}}, r"^the name 'x+ in SETTING must be 1 to 200 bytes of text, got 201$"),
    ],
)
def test_an_error_about_one_part_of_a_value_names_that_part(validate: Any, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        validate("SETTING", value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("validate", "value", "words"),
    [
        (classes, ["shop.A", 5], r"paths of classes, each once, but SETTING\[1\] is of the type int"),
        (classes, ["shop.A", "s3cret"], r"but SETTING\[1\] has no dot"),
        (classes, ["shop.A", "shop.B", "shop.A"], r"SETTING\[2\] is 'shop.A' again, as SETTING\[0\]; take one out"),
        (modules, ("shop.jobs", b"s3cret"), r"dotted module paths, but SETTING\[1\] is of the type bytes"),
        (secrets, ["k" * 32, "s3cret"], r"texts of at least 32 characters, but SETTING\[1\] has 6"),
        (secrets, [b"s3cret" * 8], r"but SETTING\[0\] is of the type bytes"),
        (secrets, "s3cret" * 8, "a list of texts of at least 32 characters, got str"),
    ],
)
def test_an_error_about_a_list_names_the_first_wrong_entry(validate: Any, value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=f"^SETTING.*{words}$|^{words}$") as caught:
        validate("SETTING", value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("us", "text"),
    [(0, "0 s"), (10_000, "0.01 s"), (90 * SECOND_US, "90 s"), (HOUR_US, "1 hour"), (36 * HOUR_US, "36 hours")]
    + [(DAY_US, "1 day"), (3_650 * DAY_US, "3,650 days")],
)
def test_a_duration_has_a_text_for_people(us: int, text: str) -> None:
    assert duration_text(us) == text
