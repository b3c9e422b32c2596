"""Error text: an error that is too long to be stored keeps its end, and the beginning of its own message."""

import json

import pytest

from django_delayq.job.attempts import EARLIER_ERROR, LAST_ERROR, NO_ATTEMPTS
from django_delayq.job.errors.error_text import cut_error
from django_delayq.job.result import JobError
from tests.unit.job.errors.test_job_error import group, noted, raised, stored


def kept(error: Exception) -> list[str]:
    """Return the text of an attempt, as an earlier one and as the last one."""
    text, path = stored(error)
    attempts = NO_ATTEMPTS
    for _ in range(2):
        attempts = attempts.add(worker="w", started_us=1, ended_us=2, ending="failed", error=text, exception=path)
    return [entry["error"] for entry in attempts.history]


LONG = raised(ValueError("the end\n" * 2_000))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("no row " + "x" * 20_000), "no row xxx"),
        (ValueError("no row\n" + "x\n" * 20_000), "no row\nx\n"),
        (ValueError("ü" * 20_000), "ü" * 15),
        (noted(ValueError("no row"), "x" * 20_000), "no row\nxxx"),
        (ValueError("no row\n" + '  File "x.py"\n' * 2_000), 'no row\n  File "x.py"'),
        (group(*[raised(ValueError("x" * 1_000)) for _ in range(40)]), "several\nlines (40 sub-exceptions)"),
        (group(*[raised(ValueError("x"), LONG) for _ in range(3)]), "several\nlines (3 sub-exceptions)"),
    ],
    ids=lambda value: repr(value)[:30],
)
@pytest.mark.parametrize("behind", [None, LONG, group(LONG)], ids=["alone", "behind one", "behind a group"])
def test_a_cut_error_has_the_beginning_of_its_message(error: Exception, message: str, behind: Exception | None) -> None:
    error.__traceback__ = error.__context__ = None
    error = raised(error, behind)
    text, path = stored(error)
    for cut, limit in zip(kept(error), (EARLIER_ERROR, LAST_ERROR), strict=True):
        assert len(json.dumps(cut)) - 2 <= limit
        assert JobError.of(cut, path).message.startswith(message)
        assert cut.startswith("…") and cut.endswith(text[-limit // 16 :])


def test_a_cut_group_has_its_whole_message_and_no_more() -> None:
    error = raised(group(*[raised(ValueError("x" * 1_000)) for _ in range(40)]))
    for cut in kept(error):
        assert JobError.of(cut, stored(error)[1]).message == "several\nlines (40 sub-exceptions)"


@pytest.mark.parametrize("limit", [EARLIER_ERROR, LAST_ERROR])
def test_wherever_an_error_is_cut_its_message_has_its_beginning(limit: int) -> None:
    for length in range(limit - 40, limit + 10):
        text = 'Traceback (most recent call last):\n  File "shop.py"\nshop.Declined: ' + "x" * length
        cut = cut_error(text, limit, exception="shop.Declined")
        assert len(json.dumps(cut)) - 2 <= limit
        assert JobError.of(cut, "shop.Declined").message.startswith("xxx")


def test_an_error_whose_message_is_at_its_end_is_only_cut_at_its_start() -> None:
    text, path = stored(raised(ValueError("no row"), LONG))
    cut = cut_error(text, EARLIER_ERROR, exception=path)
    assert cut[0] == "…" and text.endswith(cut[1:])
    assert JobError.of(cut, path).message == "no row"


def test_a_class_that_takes_half_of_the_text_is_left_out() -> None:
    name = f"shop.{'Ü' * 195}"
    cut = cut_error(f"{name}: {'x' * 2_000}", EARLIER_ERROR, exception=name)
    assert cut == "…" + "x" * (EARLIER_ERROR - 6)
