"""Which jobs an action is about: selected rows, or all that matched when the person saw the list."""

from django.test import Client

from django_delayq.job.ids import from_text
from django_delayq.job.outcome import Action, Decision
from django_delayq.store.claims import Settlement
from tests.admin.conftest import page
from tests.admin.forms import form_to
from tests.admin.jobs import HOUR, add, add_dead, claim, due_us, state
from tests.admin.page_content import link, text
from tests.admin.steps import confirm, request_action, result
from tests.shard_apis import ShardApis

MINUTE = HOUR // 60


def test_a_job_counts_once_whichever_moments_its_rows_have(browser: Client, stock: ShardApis) -> None:
    mine, other = add(stock), add(stock)
    form = form_to(browser.get(page("scheduled")), "/action/")
    rows = [("row", f"{mine}.{number}") for number in range(5)]
    assert "1 job will run now." in result(browser, form.post(browser, *rows, action="run_now"))
    assert (state(stock, mine), state(stock, other)) == ("ready", "scheduled")


def test_selected_failed_jobs_are_retried_and_failures_are_reported(browser: Client, stock: ShardApis) -> None:
    mine = [add_dead(stock, number) for number in range(3)]
    response = request_action(browser, page("failed"), "retry", *mine)
    assert "Retry 3 failed jobs?" in text(response)
    for number, text_id in enumerate(mine):
        assert f"…{text_id[18:]} noop({number}) Broken: could not send" in text(response)
    raw_id, _ = from_text(mine[0]) or (b"", 0)
    stock.operations.discard(raw_id, died_us=due_us(stock, mine[0]))
    assert "2 jobs retried. 1 was already gone." in result(browser, confirm(browser, response))
    assert [state(stock, each) for each in mine] == ["gone", "ready", "ready"]
    found = stock.inspection.find(bytes.fromhex(mine[1][:24]))
    assert found.attempts.ended == 0
    assert len(found.attempts.history) == 1


def test_all_matching_jobs_without_later_ones(browser: Client, stock: ShardApis) -> None:
    mine = [add_dead(stock, number, queue="mail") for number in range(3)]
    other = add_dead(stock)
    listed = form_to(browser.get(page("failed", queue="mail")), "/action/", button="retry")
    later = add_dead(stock, queue="mail")
    response = listed.post(browser, ("all", "yes"), action="retry")
    assert "Retry 3 failed jobs?" in text(response)
    assert "Queue mail, failed up to" in text(response)
    assert "3 jobs retried." in result(browser, confirm(browser, response))
    assert {state(stock, each) for each in mine} == {"ready"}
    assert {state(stock, each) for each in (other, later)} == {"dead"}


def test_later_scheduled_jobs_are_not_included(browser: Client, stock: ShardApis) -> None:
    mine = [add(stock, number) for number in range(3)]
    listed = form_to(browser.get(page("scheduled")), "/action/", button="cancel")
    response = listed.post(browser, ("all", "yes"), action="cancel")
    later = add(stock)
    assert "3 jobs cancelled." in result(browser, confirm(browser, response))
    assert {state(stock, each) for each in mine} == {"gone"}
    assert state(stock, later) == "scheduled"


def test_a_job_that_ran_when_the_person_looked_is_not_included(browser: Client, stock: ShardApis) -> None:
    back = add(stock, "ran", queue="runs", delay=None)
    worker, running = claim(stock, back, queue="runs")
    mine = add(stock, "waits", delay=HOUR)
    confirm_page = request_action(browser, page("scheduled"), "cancel", all="yes")
    now_us = stock.clock.now_us
    attempts = running.attempts.add(worker="w", started_us=now_us, ended_us=now_us, ending="failed", error="x")
    again = Settlement(claim=running, decision=Decision(action=Action.RETRY, delay_us=HOUR // 2), attempts=attempts)
    assert not worker.take(0, settle=[again]).lost
    assert "1 job cancelled." in result(browser, confirm(browser, confirm_page))
    assert (state(stock, mine), state(stock, back)) == ("gone", "scheduled")


def test_a_row_of_an_unknown_shard_is_gone(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock)
    form = form_to(browser.get(page("failed")), "/action/")
    response = form.post(browser, ("row", f"{mine[:24]}-9999.5"), action="retry")
    assert "Already gone: nothing was changed." in result(browser, response)


def test_an_action_returns_to_the_same_page_of_the_list(browser: Client, stock: ShardApis) -> None:
    mine = [add_dead(stock, number, queue="mail") for number in range(30)]
    first = browser.get(page("failed", queue="mail", n=25, sort="reversed"))
    address = link(first, "After")
    response = confirm(browser, request_action(browser, address, "delete", mine[-1]))
    assert response.url == address
    assert link(request_action(browser, address, "delete", mine[-2]), "Go back") == address


def test_an_action_on_a_jobs_own_page_returns_there(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock)
    response = form_to(browser.get(page("job_detail", mine)), "/action/", button="retry").post(browser, action="retry")
    assert response.url == page("job_detail", mine)
