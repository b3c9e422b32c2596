"""Failed jobs: rows, errors, groups."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from django_delayq.admin.actions.bulk_actions import BULK_ACTIONS, ActionResult, Target
from django_delayq.job.ids import from_text
from django_delayq.job.job import State
from django_delayq.job.outcome import OutcomeKind
from django_delayq.store.store import get_store
from tests.admin.conftest import page
from tests.admin.forms import form_to, forms
from tests.admin.jobs import HOSTILE, add_dead, due_us, state
from tests.admin.page_content import ids, link, text
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


def test_the_task_links_to_the_job_as_the_id_does(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock)
    answer = browser.get(page("failed"))
    assert link(answer, "noop") == link(answer, f"…{mine[18:]}")
    assert f"/{mine}/" in link(answer, "noop")


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
    assert f'<option value="{ending}">{words}</option>' in answer.content.decode()
    assert ids(browser.get(page("failed", error=ending))) == [mine]
    groups = browser.get(page("failed", group="error", error=ending))
    assert f"{words} in noop 1" in text(groups)
    assert ids(browser.get(link(groups, "Show"))) == [mine]
    assert f"{words}: Why" in text(browser.get(page("job_detail", mine)))


def test_errors_and_tasks_of_the_page_are_suggested(browser: Client, stock: ShardApis) -> None:
    add_dead(stock, task="old.removed"), add_dead(stock, task="x" * 300, error=OTHER)
    for group in ("", "error"):
        html = browser.get(page("failed", group=group)).content.decode()
        assert '<option value="shop.errors.Broken">Broken</option>' in html
        assert '<option value="smtplib.Refused">Refused</option>' in html
        assert '<option value="old.removed">old.removed</option>' in html
        assert '<option value="tests.sample_app.tasks.noop">' in html
        assert f'<option value="{"x" * 300}">' not in html


def test_an_empty_list_explains_what_belongs_here(browser: Client) -> None:
    assert "No job has failed for good." in text(browser.get(page("failed")))
    assert "No failed jobs here." in text(browser.get(page("failed", group="error")))


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
    assert page_text.index("Broken in noop 3") < page_text.index("Refused in noop 1")
    assert "Broken in send 1" in page_text
    assert "5 matches in 5 of 5 rows" in page_text
    page_text = text(browser.get(page("failed", group="task")))
    assert "noop 4" in page_text
    assert "send 1" in page_text


def test_a_group_leads_to_its_failed_jobs_and_retries_them(browser: Client, stock: ShardApis) -> None:
    broken, refused = [add_dead(stock) for _ in range(2)], add_dead(stock, error=OTHER)
    answer = browser.get(page("failed", group="error"))
    assert set(ids(browser.get(link(answer, "Show")))) == set(broken)
    form = next(form for form in forms(answer) if form.offers("retry"))
    confirm = form.post(browser, action="retry")
    assert "Retry 2 failed jobs?" in text(confirm)
    form_to(confirm, "/action/").post(browser)
    assert {state(stock, each) for each in broken} == {"ready"}
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
    assert "ExceptionGroup in noop 2" in text(groups)
    assert set(ids(browser.get(link(groups, "Show")))) == mine
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


def test_a_scan_without_a_match_continues(browser: Client, stock: ShardApis, bounds: Callable[..., None]) -> None:
    bounds(scanned_rows=50)
    for number in range(60):
        add_dead(stock, "hay" if number else "needle")
    answer = browser.get(page("failed", group="error", q="needle"))
    assert "Nothing so far." in text(answer)
    assert "Broken in noop 1" in text(browser.get(link(answer, "Continue")))
    assert "No failed jobs here." in text(browser.get(page("failed", group="error", q="none", n=25, after="1.00")))


def test_groups_of_more_than_one_scan_continue(browser: Client, stock: ShardApis, bounds: Callable[..., None]) -> None:
    bounds(scanned_rows=50)
    for number in range(60):
        add_dead(stock, number)
    answer = browser.get(page("failed", group="error"))
    assert "Broken in noop 50" in text(answer)
    assert "Broken in noop 10" in text(browser.get(link(answer, "Continue")))


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
    assert ids(browser.get(link(shown, "Show"))) == [mine]
    stock.client.hset(stock.keys("dead_bodies"), raw_id, b"\xff" * 10)
    for address in (page("failed"), page("failed", group="error"), page("job_detail", mine)):
        assert browser.get(address).status_code == 200


def test_a_dead_letter_whose_key_belongs_to_another_shard_is_retried_there(
    browser: Client, stock: ShardApis, delayq_settings: Any
) -> None:
    died = [stock.inspection.dead_letter(stock.add_dead(key=f"{number}")) for number in range(8)]
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": 2}
    operations, retry = one_by_one(), BULK_ACTIONS["retry"]
    results = [*retry.apply(operations, [Target(each.raw_id, 0, each.moment_us) for each in died if each], {})]
    assert results == [ActionResult.DONE] * 8
    assert 0 < get_store().lookup(1).page(State.READY, queues=["default"]).total < 8
