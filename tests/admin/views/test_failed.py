"""Failed jobs: rows, errors, groups."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils.html import escape

from django_delayq.admin.actions.bulk_actions import BULK_ACTIONS, ActionResult, Target
from django_delayq.admin.lists.search_terms import write_term
from django_delayq.job.ids import from_text
from django_delayq.job.job import State
from django_delayq.job.outcome import OutcomeKind
from django_delayq.store.store import get_store
from tests.admin.conftest import page
from tests.admin.forms import form_to, forms
from tests.admin.jobs import HOSTILE, add_dead, due_us, state
from tests.admin.page_content import ids, job_link, link, text
from tests.one_by_one import one_by_one
from tests.shard_apis import ShardApis

OTHER = '  File "x.py", line 1, in f\nsmtplib.Refused: no\n'


def test_failed_jobs_are_listed_newest_first_with_their_error(browser: Client, stock: ShardApis) -> None:
    first, second = add_dead(stock, 1), add_dead(stock, 2, error=OTHER)
    answer = browser.get(page("failed"))
    assert ids(answer) == [second, first]
    assert "Refused no" in text(answer)
    assert "Broken could not send" in text(answer)
    assert "1/3" in text(answer)
    assert "Kept for 30 days, at most 100,000 " in text(answer)


@pytest.mark.parametrize(("hours", "age_text"), [(24, "1 day"), (36, "36 h"), (48, "2 days")])
def test_the_retention_is_shown_in_days(hours: int, age_text: str, browser: Client, delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "DEAD_MAX_AGE": hours * 3_600}
    assert f"Kept for {age_text}, at most" in text(browser.get(page("failed")))


def test_the_task_links_to_the_job(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock)
    answer = browser.get(page("failed"))
    assert link(answer, "noop") == job_link(answer, mine)
    assert f"Failed {mine}" in text(browser.get(job_link(answer, mine)))


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (OutcomeKind.UNKNOWN_TASK, "task not known"),
        (OutcomeKind.BAD_SIGNATURE, "signature invalid"),
        (OutcomeKind.UNREADABLE, "could not be read"),
    ],
)
def test_an_outcome_is_shown_in_words_and_filtered_by_its_stored_name(
    ending: OutcomeKind, words: str, browser: Client, stock: ShardApis
) -> None:
    mine, _ = add_dead(stock, error="Why", ending=ending), add_dead(stock)
    answer = browser.get(page("failed"))
    assert f"{words} Why" in text(answer)
    assert f'<option value="{escape(write_term("error", ending))}">' in answer.content.decode()
    assert ids(browser.get(page("failed", error=ending))) == [mine]
    groups = browser.get(page("failed", group="error", error=ending))
    assert f"{words} in noop new since yesterday Why 1" in text(groups)
    assert ids(browser.get(link(groups, f"{words} in noop"))) == [mine]
    assert f"{words}: Why" in text(browser.get(page("job_detail", mine)))


@pytest.mark.usefixtures("few_tasks")
def test_errors_and_tasks_of_the_page_are_suggested(browser: Client, stock: ShardApis) -> None:
    add_dead(stock, task="old.removed"), add_dead(stock, task="x" * 300, error=OTHER)
    html = browser.get(page("failed")).content.decode()
    assert '<option value="error:shop.errors.Broken">' in html
    assert '<option value="error:smtplib.Refused">' in html
    assert '<option value="task:old.removed">' in html
    assert '<option value="task:tests.sample_app.tasks.noop">' in html
    assert f'<option value="task:{"x" * 300}">' not in html


def test_an_empty_list_explains_what_belongs_here(browser: Client) -> None:
    assert "No job has failed for good." in text(browser.get(page("failed")))
    assert "All clear. No failed jobs here." in text(browser.get(page("failed", group="error")))


def test_failed_jobs_are_filtered_by_error(browser: Client, stock: ShardApis) -> None:
    broken, refused = add_dead(stock, 1, queue="mail"), add_dead(stock, 2, error=OTHER)
    assert ids(browser.get(page("failed", error="Refused"))) == [refused]
    assert ids(browser.get(page("failed", error="smtplib.Refused"))) == [refused]
    assert ids(browser.get(page("failed", queue="mail"))) == [broken]
    assert ids(browser.get(page("failed", q="COULD NOT"))) == [broken]
    assert ids(browser.get(page("failed", within="1h"))) == [refused, broken]
    assert ids(browser.get(page("failed", to=due_us(stock, refused)))) == [broken]
    assert ids(browser.get(page("failed", at=due_us(stock, broken)))) == [broken]


def test_every_failed_job_is_on_exactly_one_page(browser: Client, stock: ShardApis) -> None:
    made = [add_dead(stock, number) for number in range(30)]
    first = browser.get(page("failed", n=25))
    rest = browser.get(link(first, "After"))
    assert ids(first) + ids(rest) == made[::-1]
    assert "Rows 26–30 of 30" in text(rest)
    assert ids(browser.get(link(rest, "Before"))) == ids(first)


def test_groups_show_error_task_number_and_times(browser: Client, stock: ShardApis) -> None:
    for _ in range(3):
        add_dead(stock)
    add_dead(stock, error=OTHER)
    add_dead(stock, task="shop.tasks.send")
    page_text = text(browser.get(page("failed", group="error")))
    assert page_text.index("Broken in noop") < page_text.index("Refused in noop")
    assert "Broken in noop new since yesterday could not send 3" in page_text
    assert "Broken in send new since yesterday could not send 1" in page_text
    assert "5 failed jobs, 3 groups" in page_text
    page_text = text(browser.get(page("failed", group="task")))
    assert "noop new since yesterday 4" in page_text
    assert "send new since yesterday 1" in page_text
    assert "5 failed jobs, 2 groups" in page_text


def test_groups_are_ordered_by_number_and_by_time(browser: Client, stock: ShardApis) -> None:
    for task in ("shop.first", "shop.often", "shop.often", "shop.last"):
        add_dead(stock, task=task)
    groups = browser.get(page("failed", group="task"))

    def tasks(response: Any) -> list[str]:
        return re.findall(r"task=%3Dshop.(\w+)[^>]*>\w", response.content.decode())

    assert tasks(groups)[0] == "often"
    assert tasks(browser.get(link(groups, "Last"))) == ["last", "often", "first"]
    assert tasks(browser.get(page("failed", group="task", order="first"))) == ["last", "often", "first"]


def test_groups_are_limited_by_task_error_and_time(browser: Client, stock: ShardApis) -> None:
    first, *_ = [add_dead(stock, task="shop.send"), add_dead(stock, task="shop.send"), add_dead(stock, error=OTHER)]
    assert "2 failed jobs, 1 group" in text(browser.get(page("failed", group="error", task="send")))
    assert "1 failed job, 1 group" in text(browser.get(page("failed", group="error", error="Refused")))
    assert "No failed jobs here." in text(browser.get(page("failed", group="error", error="Refused", task="send")))
    # The bars end up to 24 µs later.
    until = browser.get(page("failed", group="error", to=due_us(stock, first) - 30))
    assert "No failed jobs here." in text(until)
    assert "1 failed job, 1 group" in text(browser.get(page("failed", group="task", to=due_us(stock, first) + 1)))
    assert "3 failed jobs, 2 groups" in text(browser.get(page("failed", group="error", within="1h")))
    assert "Left out of this filter: queue, text." in text(browser.get(page("failed", group="error", queue="x", q="y")))


def test_a_group_leads_to_its_failed_jobs_and_retries_them(browser: Client, stock: ShardApis) -> None:
    broken, refused = [add_dead(stock) for _ in range(2)], add_dead(stock, error=OTHER)
    answer = browser.get(page("failed", group="error"))
    of_group = browser.get(link(answer, "Broken in noop"))
    assert set(ids(of_group)) == set(broken)
    assert "error Broken: could not send in tests.sample_app.tasks.noop" in text(of_group)
    form = next(form for form in forms(answer) if form.offers("retry"))
    confirm = form.post(browser, action="retry")
    assert "Retry 2 failed jobs?" in text(confirm)
    form_to(confirm, "/action/").post(browser)
    assert {state(stock, each) for each in broken} == {"ready"}
    assert state(stock, refused) == "dead"
    assert "1 failed job, 1 group" in text(browser.get(page("failed", group="error")))
    assert "error none left" in text(browser.get(link(answer, "Broken in noop")))


def test_a_group_is_deleted(browser: Client, stock: ShardApis) -> None:
    broken, refused = [add_dead(stock) for _ in range(2)], add_dead(stock, error=OTHER)
    form = next(form for form in forms(browser.get(page("failed", group="error"))) if form.offers("delete"))
    confirm = form.post(browser, action="delete")
    assert "Delete 2 failed jobs?" in text(confirm)
    form_to(confirm, "/action/").post(browser)
    assert {state(stock, each) for each in broken} == {"gone"}
    assert state(stock, refused) == "dead"


def test_a_group_of_an_error_that_its_traceback_does_not_name_leads_to_its_jobs(
    browser: Client, stock: ShardApis
) -> None:
    error = (
        "  + Exception Group Traceback (most recent call last):\n  | ExceptionGroup: two (2 sub-exceptions)\n  +-----\n"
    )
    add_dead(stock)
    mine = {add_dead(stock, error=error, exception="builtins.ExceptionGroup") for _ in range(2)}
    groups = browser.get(page("failed", group="error"))
    assert "2 failed jobs" in text(browser.get(page("failed", group="error", error="ExceptionGroup")))
    assert set(ids(browser.get(link(groups, "ExceptionGroup in noop")))) == mine
    assert "ExceptionGroup two (2 sub-exceptions)" in text(browser.get(page("failed", error="ExceptionGroup")))


def test_a_group_is_retried_later(browser: Client, stock: ShardApis) -> None:
    broken, refused = [add_dead(stock) for _ in range(2)], add_dead(stock, error=OTHER)
    form = next(form for form in forms(browser.get(page("failed", group="error"))) if form.offers("retry_later"))
    confirm = form.post(browser, action="retry_later")
    assert "Retry 2 failed jobs later?" in text(confirm)
    assert "Retry all at" in text(confirm)
    form_to(confirm, "/action/").post(browser, minutes="30")
    assert {state(stock, each) for each in broken} == {"scheduled"}
    assert state(stock, refused) == "dead"


def test_a_task_and_an_error_are_found_without_a_scan(
    browser: Client, stock: ShardApis, bounds: Callable[..., None]
) -> None:
    bounds(scanned_rows=5, slice_rows=5)
    mine = add_dead(stock, error=OTHER, task="shop.send")
    for number in range(30):
        add_dead(stock, number)
    for query in ({"task": "send"}, {"error": "Refused"}, {"task": "shop.send", "error": "smtplib.Refused"}):
        found = browser.get(page("failed", **query))
        assert ids(found) == [mine]
        assert "Rows 1–1 of 1" in text(found)
    assert "Rows 1–25 of 30" in text(browser.get(page("failed", task="noop", n=25)))


def test_jobs_of_other_errors_are_searched_for_a_task(
    browser: Client, stock: ShardApis, bounds: Callable[..., None]
) -> None:
    mine, _ = add_dead(stock, error=OTHER, task="shop.send"), add_dead(stock)
    # As with more groups than are kept: nothing is known of what these jobs have in common.
    other = bytes(12)
    for raw_id in stock.client.hkeys(stock.keys("groups_of_dead")):
        stock.client.hset(stock.keys("groups_of_dead"), raw_id, other)
        died = stock.inspection.dead_letter(raw_id).moment_us
        stock.client.zadd(stock.keys("dead_by_group"), {other + died.to_bytes(8) + raw_id: 0})
    stock.client.delete(stock.keys("error_groups"))
    stock.client.hset(stock.keys("error_groups"), other, bytes(16))
    groups = browser.get(page("failed", group="error"))
    assert "Other errors in ?" in text(groups)
    assert len(ids(browser.get(link(groups, "Other errors")))) == 2
    found = browser.get(page("failed", task="send"))
    assert ids(found) == [mine]
    assert "1 match. Searched 2 of 2" in text(found)


def test_hostile_errors_and_tasks_are_text(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(
        stock, HOSTILE, task=HOSTILE, queue=HOSTILE, error=f'  File "x"\nBad: {HOSTILE}', **{HOSTILE: HOSTILE}
    )
    raw_id, _ = from_text(mine) or (b"", 0)
    for address in (
        page("failed"),
        page("failed", group="error"),
        page("failed", group="task"),
        page("job_detail", mine),
    ):
        body = browser.get(address).content.decode()
        assert "<script>alert" not in body
        assert "\x00" not in body
        assert "\x1b" not in body
    shown = browser.get(page("failed", group="error"))
    assert ids(browser.get(link(shown, "Bad in"))) == [mine]
    stock.client.hset(stock.keys("dead_bodies"), raw_id, b"\xff" * 10)
    for address in (page("failed"), page("failed", group="error"), page("job_detail", mine)):
        assert browser.get(address).status_code == 200


def test_a_dead_letter_whose_key_belongs_to_another_shard_is_retried_there(
    browser: Client, stock: ShardApis, delayq_settings: Any
) -> None:
    died = [stock.inspection.dead_letter(stock.add_dead(key=f"{number}")) for number in range(8)]
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": 2}
    operations, retry = one_by_one(), BULK_ACTIONS["retry"]
    changes = retry.apply(operations, [Target(each.raw_id, 0, each.moment_us) for each in died if each], {})
    assert [each.result for each in changes] == [ActionResult.DONE] * 8
    assert 0 < get_store().lookup(1).page(State.READY, queues=["default"]).total < 8
