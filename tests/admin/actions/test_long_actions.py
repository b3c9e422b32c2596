"""Actions that take several requests, and forms that are posted twice."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_delayq.admin.actions import session, view
from django_delayq.admin.actions.run import run
from django_delayq.clock import ServerClock
from django_delayq.exceptions import StoreUnavailable
from django_delayq.job.outcome import Action
from django_delayq.store.operations.batch import BatchJob, Effect
from django_delayq.store.operations.waiting_jobs import WaitingJobs
from tests.admin.conftest import page
from tests.admin.forms import form_to
from tests.admin.jobs import HOUR, add, add_dead, claim, due_us, state
from tests.admin.page_content import text
from tests.admin.steps import confirm, continue_to_end, request_action, result
from tests.shard_apis import ShardApis

MINUTE = HOUR // 60


def test_a_second_press_changes_nothing(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock)
    other = add_dead(stock)
    at_once = form_to(browser.get(page("failed")), "/action/")
    row = next(box for box in at_once.boxes if box[1].startswith(mine))
    asked = request_action(browser, page("failed"), "retry", mine, other)
    assert "1 job retried." in result(browser, at_once.post(browser, ("one", row[1])))
    assert "Already gone: nothing was changed." in result(browser, at_once.post(browser, ("one", row[1])))
    assert "1 job retried. 1 was already gone." in result(browser, confirm(browser, asked))
    # It failed again since then, so it is another failed job.
    worker, claimed = claim(stock, mine)
    worker.settle(claimed, Action.DEAD_LETTER)
    assert "Already gone: nothing was changed." in result(browser, at_once.post(browser, ("one", row[1])))
    assert "Already gone: nothing was changed." in result(browser, confirm(browser, asked))
    assert state(stock, mine) == "dead"


def test_who_logs_out_elsewhere_meanwhile_reads_the_result(
    browser: Client, stock: ShardApis, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = [add_dead(stock, number) for number in range(2)]
    asked = request_action(browser, page("failed"), "retry", all="yes")
    elsewhere = Client()
    elsewhere.cookies = browser.cookies.copy()  # type: ignore[assignment]

    def run_and_log_out(*args: Any) -> Iterator[Any]:
        yield from run(*args)
        assert elsewhere.post("/admin/logout/").status_code == 200

    monkeypatch.setattr(view, "run", run_and_log_out)
    assert confirm(browser, asked).status_code == 302
    assert {state(stock, each) for each in mine} == {"ready"}


def test_a_long_action_continues_from_form_to_form(
    browser: Client, stock: ShardApis, bounds: Callable[..., None]
) -> None:
    bounds(action_seconds=0, changed_jobs=1, logged_jobs=5)
    mine = [add_dead(stock, number) for number in range(12)]
    response = confirm(browser, request_action(browser, page("failed", within="1h"), "retry", all="yes"))
    for steps in range(1, 20):
        noun = "job" if steps == 1 else "jobs"
        assert f"{min(steps, 12)} {noun} retried. {min(steps, 12)} of 12 done." in text(response)
        assert "data-continue" in response.content.decode()
        assert stock.inspection.counts().dead == 12 - min(steps, 12)
        assert LogEntry.objects.get().change_message.startswith(f"{min(steps, 12)} {noun} retried,")
        response = form_to(response, "/action/").post(browser)
        if response.status_code == 302:
            break
    assert steps == 11
    assert "12 jobs retried." in result(browser, response)
    assert {state(stock, each) for each in mine} == {"ready"}
    assert LogEntry.objects.get().change_message.startswith("12 jobs retried,")


def test_an_old_form_of_a_long_action_repeats_nothing(
    browser: Client, stock: ShardApis, bounds: Callable[..., None]
) -> None:
    bounds(action_seconds=0, changed_jobs=1)
    mine = [add(stock, number, delay=HOUR * (number + 1)) for number in range(3)]
    dues = [due_us(stock, each) for each in mine]
    first = confirm(browser, request_action(browser, page("scheduled"), "reschedule", *mine), shift="5", unit="60")
    form_to(first, "/action/").post(browser)
    continue_to_end(browser, first)
    assert [due_us(stock, each) for each in mine] == [due + 5 * MINUTE for due in dues]


def unfinished(browser: Client, name: str = "overview") -> Any:
    """Return the form with which a page offers to continue an action; None if it offers none."""
    response = browser.get(page(name))
    return form_to(response, "/action/", button="yes") if "delayq-unfinished" in response.content.decode() else None


def test_every_page_offers_to_continue_an_action_whose_page_was_closed(
    browser: Client, visitor: Callable[..., Client], stock: ShardApis, bounds: Callable[..., None]
) -> None:
    bounds(action_seconds=0, changed_jobs=1)
    mine = [add_dead(stock, number) for number in range(5)]
    response = confirm(browser, request_action(browser, page("failed"), "retry", all="yes"))
    form_to(response, "/action/").post(browser)
    # The page of the second step is lost.
    assert "Retry 5 failed jobs: 2 of 5 done." in text(browser.get(page("tasks")))
    assert unfinished(visitor("manager")) is None
    late = add_dead(stock, "late")
    assert "5 jobs retried." in result(browser, continue_to_end(browser, unfinished(browser).post(browser)))
    assert {state(stock, each) for each in mine} == {"ready"}
    assert state(stock, late) == "dead"
    assert unfinished(browser) is None
    # The form that was open elsewhere repeats nothing.
    assert "This was done already" in result(browser, form_to(response, "/action/").post(browser))


def test_an_action_that_redis_failed_can_be_continued_and_changes_no_job_twice(
    browser: Client, stock: ShardApis, monkeypatch: pytest.MonkeyPatch, bounds: Callable[..., None]
) -> None:
    bounds(changed_jobs=1)
    mine = [add(stock, number, delay=HOUR * (number + 1)) for number in range(4)]
    dues = [due_us(stock, each) for each in mine]
    reschedule, calls = WaitingJobs.reschedule, []

    def loses_a_reply(self: WaitingJobs, jobs: Sequence[BatchJob], **options: Any) -> Sequence[Effect]:
        moved = reschedule(self, jobs, **options)
        calls.append(jobs)
        if len(calls) == 2:
            raise StoreUnavailable("gone away")
        return moved

    monkeypatch.setattr(WaitingJobs, "reschedule", loses_a_reply)
    response = request_action(browser, page("scheduled"), "reschedule", all="yes")
    assert confirm(browser, response, shift="-30", unit="60").status_code == 503
    assert "3 jobs rescheduled" in result(browser, continue_to_end(browser, unfinished(browser).post(browser)))
    assert [due - due_us(stock, each) for each, due in zip(mine, dues, strict=True)] == [30 * MINUTE] * 4


def test_an_action_that_is_stopped_cannot_be_continued(
    browser: Client, stock: ShardApis, bounds: Callable[..., None]
) -> None:
    bounds(action_seconds=0, changed_jobs=1)
    mine = [add_dead(stock, number) for number in range(5)]
    response = confirm(browser, request_action(browser, page("failed"), "retry", all="yes"))
    assert "Stopped. 1 job retried." in result(browser, unfinished(browser, "failed").post(browser, stop="yes"))
    assert unfinished(browser) is None
    assert "This was done already" in result(browser, form_to(response, "/action/").post(browser))
    assert [state(stock, each) for each in mine].count("dead") == 4
    other = request_action(browser, page("failed"), "delete", all="yes")
    assert "Nothing was done." in result(browser, form_to(other, "/action/").post(browser, stop="yes"))
    assert stock.inspection.counts().dead == 4


def test_an_action_that_is_stopped_while_a_step_is_answered_cannot_be_continued(
    browser: Client, stock: ShardApis, bounds: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds(action_seconds=0, changed_jobs=1)
    for number in range(5):
        add_dead(stock, number)
    form = form_to(confirm(browser, request_action(browser, page("failed"), "retry", all="yes")), "/action/")
    offered, elsewhere, keep_unfinished = unfinished(browser), Client(), session.keep_unfinished
    elsewhere.cookies = browser.cookies.copy()  # type: ignore[assignment]

    def keep_and_stop(*args: Any) -> None:
        keep_unfinished(*args)
        assert "Stopped. 1 job retried." in result(elsewhere, offered.post(elsewhere, stop="yes"))

    with monkeypatch.context() as patched:
        patched.setattr(session, "keep_unfinished", keep_and_stop)
        response = form.post(browser)
    assert "2 of 5 done." in text(response)
    assert unfinished(browser) is None
    assert "This was done already" in result(browser, form_to(response, "/action/").post(browser))


@pytest.mark.parametrize(
    ("shift", "unit", "us"), [("1", "3600", HOUR), ("-30", "60", -30 * MINUTE), ("90", "1", 90_000_000)]
)
def test_all_jobs_are_shifted_once_although_they_stay_in_the_list(
    browser: Client, stock: ShardApis, bounds: Callable[..., None], shift: str, unit: str, us: int
) -> None:
    bounds(action_seconds=0, changed_jobs=1)
    mine = [add(stock, number, queue=f"q{number % 2}", delay=HOUR * (number + 1)) for number in range(6)]
    dues = [due_us(stock, each) for each in mine]
    response = confirm(
        browser, request_action(browser, page("scheduled"), "reschedule", all="yes"), shift=shift, unit=unit
    )
    response = continue_to_end(browser, response)
    assert "6 jobs rescheduled by " in result(browser, response)
    assert [due_us(stock, each) - due for each, due in zip(mine, dues, strict=True)] == [us] * 6


def test_an_action_covers_all_shards(
    browser: Client, delayq_settings: Any, redis_url: str, bounds: Callable[..., None]
) -> None:
    bounds(action_seconds=0, changed_jobs=1)
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": 3}
    parts = [ShardApis(redis_url, clock=ServerClock(), shard=shard, SHARDS=3) for shard in range(3)]
    mine = [add_dead(parts[number % 3], "needle") for number in range(7)]
    other = [add_dead(part) for part in parts]
    response = request_action(browser, page("failed", q="needle"), "retry", all="yes")
    assert "Retry 7 failed jobs?" in text(response)
    response = confirm(browser, response)
    response = continue_to_end(browser, response)
    assert "7 jobs retried." in result(browser, response)
    assert {state(parts[int(each[-1])], each) for each in mine} == {"ready"}
    assert {state(parts[int(each[-1])], each) for each in other} == {"dead"}
    for part in parts:
        part.close()


def test_changes_are_recorded_if_redis_fails(browser: Client, stock: ShardApis, bounds: Callable[..., None]) -> None:
    bounds(changed_jobs=1)
    mine = [add_dead(stock, number, queue=queue) for number, queue in enumerate(("broken", "default", "default"))]
    response = request_action(browser, page("failed"), "retry", *mine)
    # The rows are handled from the top, where the job that died last stands.
    stock.client.set(stock.keys.ready("broken"), "not a sorted set")
    failed = confirm(browser, response)
    assert failed.status_code == 503
    assert LogEntry.objects.count() == 2
    assert "2 jobs retried. Then Redis failed" in text(failed) + text(browser.get(page("failed")))
    stock.client.delete(stock.keys.ready("broken"))
    assert "1 job retried. 2 were already gone." in result(browser, confirm(browser, response))
