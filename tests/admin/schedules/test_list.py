"""The list of recurring schedules: what it shows, finds and counts, however many there are."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from django_delayq.clock import moment
from django_delayq.display.text import printable
from django_delayq.recurring.run import RunOutcome
from django_delayq.store.schedules.stored_schedule import DECLARED, PAUSED, UNREADABLE, ScheduleState
from tests.admin.conftest import page
from tests.admin.jobs import HOSTILE, NOOP
from tests.admin.page_content import link, rows, text
from tests.admin.schedule_records import add_schedule, done, plant, rewrite
from tests.admin.schedules.conftest import NOW_US
from tests.admin.steps import result
from tests.shard_apis import HOUR, SECOND, ShardApis

MINUTE = 60 * SECOND


def names(response: Any) -> list[str]:
    """Return the names of the schedules of a page, from top to bottom."""
    assert response.status_code == 200
    return re.findall(r'<th scope="row"><a href="[^"]*">([^<]*)</a>', response.content.decode())


def walk(browser: Client, address: str, *, label: str = "After") -> list[list[str]]:
    """Follow the links to the next page until there is none; return the names of each page."""
    found = []
    for _ in range(60):
        response = browser.get(address)
        found.append(names(response))
        address = link(response, label)
        if not address:
            return found
    raise AssertionError("it never ends")


def test_what_a_row_says(browser: Client, stock: ShardApis) -> None:
    add_schedule(
        stock,
        "morning",
        cron="0 9 * * mon-fri",
        tz="Asia/Tokyo",
        record={"outcomes": done(1_200), "last_end_us": NOW_US - 3 * MINUTE},
    )
    add_schedule(stock, "often", every=300)
    found = rows(browser, "recurring")
    assert found == {
        f"morning {NOOP}": [
            "0 9 * * mon-fri Asia/Tokyo",
            "waiting",
            "in 14 h",
            "done 1.2 s 3 min ago",
            "Pause morning",
        ],
        f"often {NOOP}": ["every 5 min", "waiting", "in 5 min", "–", "Pause often"],
    }


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"flags": PAUSED}, "paused –"),
        ({"flags": PAUSED | DECLARED, "running": b"a job's id.."}, "paused running declared –"),
        ({"running": b"a job's id.."}, "running in 30 min"),
        ({"flags": UNREADABLE}, "unreadable in 30 min"),
        (
            {"failures": 3, "outcomes": [(RunOutcome.FAILED, 10_000)], "last_end_us": NOW_US},
            "failed 10 s 3 in a row now",
        ),
        ({"outcomes": [(RunOutcome.SKIPPED, 0)], "last_end_us": NOW_US - HOUR}, "skipped 60 min ago"),
        ({"outcomes": [(RunOutcome.EXPIRED, 0)]}, "expired –"),
        ({"outcomes": [(RunOutcome.CANCELLED, 7)]}, "cancelled 7 ms –"),
        # A later release stored it.
        ({"outcomes": [(99, 7), (RunOutcome.DONE, 5)]}, "done 5 ms"),
    ],
)
def test_states_and_outcomes(record: dict[str, Any], words: str, browser: Client, stock: ShardApis) -> None:
    add_schedule(stock, record=record)
    [cells] = rows(browser, "recurring").values()
    assert words in " ".join(cells)


def test_a_job_that_no_worker_takes_is_shown_as_late(browser: Client, stock: ShardApis) -> None:
    add_schedule(stock, jitter=60)
    plant(stock)
    stock.clock.advance(2 * HOUR)
    [cells] = rows(browser, "recurring").values()
    assert cells[2] == "90 min ago"


def test_one_that_has_no_further_occurrence_has_ended(browser: Client, stock: ShardApis) -> None:
    add_schedule(stock, end=moment(NOW_US + 40 * MINUTE))
    stock.clock.advance(HOUR)
    [cells] = rows(browser, "recurring").values()
    assert cells[1:3] == ["ended", "–"]


def test_unknown_tasks_and_unreadable_schedules_are_shown(browser: Client, stock: ShardApis) -> None:
    add_schedule(stock, "of another project", task="old.tasks.removed")
    unreadable = add_schedule(stock, "later release", every=300)
    rewrite(stock, unreadable, b"every 300", b"daily 300")
    found = rows(browser, "recurring")
    first = f"{unreadable} this release cannot read the schedule: this release cannot read the rule 'daily 300 from 0'"
    assert list(found) == [first, "of another project old.tasks.removed"]
    assert found[first][:3] == ["–", "unreadable", "–"]


def test_filters(browser: Client, stock: ShardApis) -> None:
    for name in ("customer 1", "customer 2", "daily"):
        add_schedule(stock, name)
    add_schedule(stock, "customer 3", task="shop.tasks.digest", record={"flags": PAUSED})
    address = page("recurring")

    def found(**query: str) -> list[str]:
        return names(browser.get(page("recurring", **query)))

    assert found() == ["customer 3", "customer 1", "customer 2", "daily"]
    assert found(task="noop") == found(task=f"={NOOP}") == ["customer 1", "customer 2", "daily"]
    assert found(prefix="customer") == ["customer 3", "customer 1", "customer 2"]
    assert found(task="digest", prefix="cust") == found(state="paused") == ["customer 3"]
    assert found(prefix="ustomer") == found(task="digest", state="waiting") == []
    shown = browser.get(page("recurring", task="digest", prefix="cust"))
    assert "1 match. Searched 4 of 4." in text(shown)
    assert link(shown, "Clear") == address
    assert "Nothing here matches." in text(browser.get(page("recurring", state="ended")))


@pytest.mark.parametrize("state", ScheduleState)
def test_each_state_can_be_found(state: ScheduleState, browser: Client, stock: ShardApis) -> None:
    add_schedule(stock, "waiting")
    add_schedule(stock, "paused", record={"flags": PAUSED})
    add_schedule(stock, "running", record={"running": b"a job's id.."})
    add_schedule(stock, "unreadable", record={"flags": UNREADABLE})
    add_schedule(stock, "ended", every=60, end=moment(NOW_US + 5 * MINUTE))
    stock.clock.advance(10 * MINUTE)
    assert names(browser.get(page("recurring", state=state.value))) == [state.value]


@pytest.mark.parametrize(
    "query",
    [
        {"state": "broken"},
        {"n": "7"},
        {"after": "x"},
        {"after": "0.99999999999999999999.0"},
        {"task": "~z"},
        {"prefix": "~1"},
    ],
)
def test_an_address_that_makes_no_sense_is_reported(query: dict[str, str], browser: Client, stock: ShardApis) -> None:
    add_schedule(stock)
    response = browser.get(page("recurring", **query))
    [(name, value)] = query.items()
    assert f"“{name}” is not understood: {value}" in text(response)
    assert names(response) == ["morning"]


@pytest.mark.parametrize("after", ["9.0.0", "0.18446744073709551615.0", "0.0.99999", "0.123.4"])
def test_an_address_of_no_page_shows_nothing_wrong(after: str, browser: Client, stock: ShardApis) -> None:
    add_schedule(stock)
    response = browser.get(page("recurring", after=after))
    assert response.status_code == 200
    assert set(names(response)) <= {"morning"}


def test_a_sorted_list_has_pages(browser: Client, stock: ShardApis) -> None:
    expected = [f"name {number:03}" for number in range(60)]
    for name in expected:
        add_schedule(stock, name)
    first = browser.get(page("recurring", n=25))
    assert "Rows 1–25 of 60" in text(first)
    second = browser.get(link(first, "After"))
    assert "Rows 26–50 of 60" in text(second)
    assert link(second, "« First") == page("recurring", n=25)
    assert walk(browser, page("recurring", n=25)) == [expected[:25], expected[25:50], expected[50:]]


def test_more_schedules_than_a_page_reads_are_all_met_once(browser: Client, stock: ShardApis) -> None:
    expected = {f"name {number:03}" for number in range(600)}
    for name in expected:
        add_schedule(stock, name)
    response = browser.get(page("recurring", n=250))
    assert re.search(r"2[0-9]{2} of 600 schedules; so many are sorted page by page only\.", text(response))
    found = walk(browser, page("recurring", n=250))
    assert sorted(name for each in found for name in each) == sorted(expected)
    assert all(each == sorted(each) for each in found)


def test_a_filter_looks_at_a_part_at_a_time_and_says_so(
    browser: Client, stock: ShardApis, bounds: Callable[..., None]
) -> None:
    bounds(scanned_rows=100)
    for number in range(300):
        add_schedule(stock, f"{'rare' if number % 100 == 0 else 'name'} {number}")
    response = browser.get(page("recurring", prefix="rare"))
    assert re.search(r"[0-3] match(es)?\. Searched [56][0-9] of 300\. Keep searching", text(response))
    found = walk(browser, page("recurring", prefix="rare"), label="Keep searching")
    assert sorted(name for each in found for name in each) == ["rare 0", "rare 100", "rare 200"]
    assert len(found) >= 5


def test_a_schedule_that_is_named_in_full_is_found_at_once(
    browser: Client, stock: ShardApis, bounds: Callable[..., None]
) -> None:
    bounds(scanned_rows=20)
    for number in range(300):
        add_schedule(stock, f"name {number}")
    for number in (7, 150, 299):
        for task in ("noop", NOOP, f"={NOOP}"):
            found = names(browser.get(page("recurring", task=task, prefix=f"name {number}")))
            assert found[0] == f"name {number}"
            assert found.count(f"name {number}") == 1
    assert f"name {7}" not in names(browser.get(page("recurring", task="noop", prefix="name 7", state="paused")))


def test_the_schedules_of_all_shards_are_one_list(browser: Client, shards: list[ShardApis]) -> None:
    for number in range(30):
        add_schedule(shards[number % 3], f"name {number:02}")
    response = browser.get(page("recurring"))
    assert names(response) == [f"name {number:02}" for number in range(30)]
    assert "Rows 1–30 of 30" in text(response)
    assert [len(each) for each in walk(browser, page("recurring", n=25))] == [25, 5]


def test_damaged_entries_are_counted(browser: Client, stock: ShardApis) -> None:
    add_schedule(stock)
    stock.client.hset(stock.keys("schedules"), mapping={"short": "x", "empty": ""})
    response = browser.get(page("recurring"))
    assert names(response) == ["morning"]
    assert "2 entries are damaged and not shown." in text(response)


def test_the_tab_is_there_if_there_are_schedules(browser: Client, stock: ShardApis) -> None:
    assert page("recurring") not in browser.get(page("overview")).content.decode()
    empty = browser.get(page("recurring"))
    assert "There is no recurring schedule." in text(empty)
    for number in range(3):
        add_schedule(stock, str(number))
    response = browser.get(page("overview"))
    assert f'href="{page("recurring")}"' in response.content.decode()
    assert "Recurring 3" in text(response)


def test_the_overview_warns_of_those_that_failures_paused_and_of_unreadable_ones(
    browser: Client, stock: ShardApis
) -> None:
    add_schedule(stock, "paused by a person", pause_after=3, record={"flags": PAUSED})
    add_schedule(stock, "failing", pause_after=3, record={"failures": 2})
    assert "Recurring schedules" not in text(browser.get(page("overview")))
    add_schedule(stock, "failed", pause_after=3, record={"flags": PAUSED, "failures": 3})
    for number in range(2):
        add_schedule(stock, f"later {number}", record={"flags": UNREADABLE})
    response = browser.get(page("overview"))
    assert "Problem: 1 recurring schedule is paused, because its jobs failed. Recurring schedules" in text(response)
    assert "Problem: 2 recurring schedules cannot be read, so none of their jobs is enqueued." in text(response)
    assert names(browser.get(link(response, "Recurring schedules"))) == ["failed", "paused by a person"]
    assert page("recurring", state="unreadable") in response.content.decode()


@pytest.mark.parametrize(("kind", "read_only"), [("viewer", False), ("superuser", True)])
def test_who_may_not_manage_sees_no_buttons(
    kind: str, read_only: bool, visitor: Callable[..., Client], stock: ShardApis, settings: Any
) -> None:
    text_id = add_schedule(stock)
    settings.DELAYQ = {**settings.DELAYQ, "ADMIN": {"READ_ONLY": read_only}}
    for address in (page("recurring"), page("recurring_schedule", text_id), page("recurring_calendar")):
        assert page("action") not in visitor(kind).get(address).content.decode()


def test_hostile_names_stay_text(browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(stock, HOSTILE, task=HOSTILE, queue=HOSTILE, args=[HOSTILE], kwargs={HOSTILE: HOSTILE})
    for address in (page("recurring"), page("recurring_schedule", text_id), page("recurring_calendar")):
        content = browser.get(address).content.decode()
        assert "<script>alert(1)" not in content
    assert printable(HOSTILE).split("<")[0] in text(browser.get(page("recurring")))
    response = browser.post(page("action"), {"action": "pause_schedule", "schedule": text_id, "confirmed": "yes"})
    assert "<script>alert(1)" not in browser.get(response.url).content.decode()
    assert result(browser, response)
