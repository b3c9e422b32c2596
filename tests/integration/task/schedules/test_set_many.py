"""`set_many()`: schedules are checked and stored in batches, while an iterator yields them."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from django_delayq.exceptions import DelayQError, InvalidDelay, InvalidSchedule, StoreUnavailable
from django_delayq.store.schedules.schedules import Schedules
from django_delayq.testing import DelayQ
from tests.sample_app.tasks import noop

HOUR = timedelta(hours=1)
pytestmark = pytest.mark.usefixtures("delayq")


def items(number: int) -> list[dict[str, Any]]:
    return [{"name": str(at), "every": HOUR, "args": [at]} for at in range(number)]


def stored() -> int:
    return sum(1 for _ in noop.schedules.iter())


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches that were stored."""
    sizes, set_schedules = list[int](), Schedules.set_schedules

    def counted(api: Schedules, definitions: Any, **options: Any) -> Any:
        sizes.append(len(definitions))
        return set_schedules(api, definitions, **options)

    monkeypatch.setattr(Schedules, "set_schedules", counted)
    return sizes


def test_an_iterator_is_stored_while_it_yields(batches: list[int]) -> None:
    seen = []

    def made() -> Iterator[dict[str, Any]]:
        for item in items(600):
            seen.append(sum(batches))
            yield item

    assert noop.schedules.set_many(made()) == 600
    assert batches == [250, 250, 100]
    assert (seen[249], seen[250], seen[599]) == (0, 250, 500)


def test_nothing_is_a_number_of_schedules_too(batches: list[int]) -> None:
    assert noop.schedules.set_many([]) == noop.schedules.set_many(iter(())) == 0
    assert batches == []


def test_equal_schedules_stay_as_they_are(delayq: DelayQ) -> None:
    noop.schedules.set_many(items(3))
    delayq.run_due()
    before = {job.id for job in delayq.enqueued}
    assert noop.schedules.set_many([*items(2), {"name": "2", "every": 2 * HOUR}]) == 3
    delayq.run_due()
    assert len(before & {job.id for job in delayq.enqueued}) == 2


def broken(item: Any) -> list[Any]:
    return [*items(300), item]


WRONG: list[tuple[Any, type[Exception], str]] = [
    ({"name": "a", "evry": 60}, TypeError, r"no option 'evry' \(did you mean 'every'\?\)"),
    ({"name": "a", "every": 60, "": 1}, TypeError, "no option ''"),
    ({"name": "a", "every": 60, "now_us": 1}, TypeError, "no option 'now_us'"),
    ({"name": "a", "every": 60, 1: 2}, TypeError, "no option 1"),
    ({"every": 60}, InvalidSchedule, "needs a name"),
    ({"name": "a"}, InvalidSchedule, "either every= or cron="),
    ({"name": "7", "every": HOUR}, InvalidSchedule, "the name '7' twice, in item 7 and in item 300"),
    ({"name": "a", "every": -1}, InvalidDelay, "every must not be negative"),
    ("a", TypeError, "takes mappings with a name each, got str"),
    ([("name", "a"), ("every", 60)], TypeError, "takes mappings with a name each, got list"),
    (None, TypeError, "got NoneType"),
]


@pytest.mark.parametrize(("item", "error", "text"), WRONG)
def test_a_wrong_item_of_a_list_leaves_nothing_stored(item: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        noop.schedules.set_many(broken(item))
    [note] = caught.value.__notes__
    assert note.startswith("This is item 300 of set_many(), counted from 0") or "twice" in text
    assert stored() == 0


@pytest.mark.parametrize(("item", "error", "text"), WRONG)
def test_batches_before_a_wrong_item_of_an_iterator_are_stored(
    item: Any, error: type[Exception], text: str, batches: list[int]
) -> None:
    with pytest.raises(error, match=text) as caught:
        noop.schedules.set_many(iter(broken(item)))
    assert "250 schedules were stored before." in caught.value.__notes__
    assert batches == [250] and stored() == 250


@pytest.mark.parametrize("schedules", [None, 5, "abc", b"abc", {"name": "a", "every": 60}])
def test_what_is_no_iterable_of_mappings_is_refused(schedules: Any) -> None:
    with pytest.raises(TypeError, match=r"set_many\(\) takes an iterable of mappings"):
        noop.schedules.set_many(schedules)
    assert stored() == 0


def test_an_error_of_the_iterator_is_raised_with_the_number_of_stored_schedules() -> None:
    def made() -> Iterator[dict[str, Any]]:
        yield from items(300)
        raise KeyError("row")

    with pytest.raises(KeyError, match="row") as caught:
        noop.schedules.set_many(made())
    assert caught.value.__notes__ == ["250 schedules were stored before."]
    assert stored() == 250


@pytest.mark.django_db(transaction=True)
def test_an_iterator_that_begins_a_transaction_is_refused() -> None:
    def made() -> Iterator[dict[str, Any]]:
        with transaction.atomic():
            yield from items(300)

    with pytest.raises(DelayQError, match="the iterator has begun a transaction on 'default'"):
        noop.schedules.set_many(made())
    assert stored() == 0


def test_an_outage_says_how_many_are_stored_and_the_call_may_be_repeated(delayq: DelayQ) -> None:
    def made(outage: Callable[[], object]) -> Iterator[dict[str, Any]]:
        for number, item in enumerate(items(600)):
            if number == 400:
                outage()
            yield item

    unreachable = delayq.unavailable()
    with pytest.raises(StoreUnavailable) as caught:
        noop.schedules.set_many(made(unreachable.__enter__))
    unreachable.__exit__(None, None, None)
    assert caught.value.accepted == stored() == 250
    assert noop.schedules.set_many(made(lambda: None)) == stored() == 600
