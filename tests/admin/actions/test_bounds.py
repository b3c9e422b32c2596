"""No action changes more jobs than were counted and confirmed, however many match by then."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from time import time_ns
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_delayq.admin.actions import view
from django_delayq.admin.actions.bulk_actions import BULK_ACTIONS
from django_delayq.admin.audit_log import admin_action
from django_delayq.clock import ServerClock
from tests.admin.conftest import page
from tests.admin.forms import form_to
from tests.admin.jobs import HOUR, add, add_dead, claim, due_us, raw, state
from tests.admin.page_content import text
from tests.admin.steps import confirm, continue_to_end, request_action, result
from tests.shard_apis import ShardApis

#: Values for the fields of the confirm page.
PARAMETERS = {
    "stop": {"grace_s": "10"},
    "reschedule": {"shift": "5", "unit": "60"},
    "move": {"queue": "other", "new_queue": "other"},
    "retry_later": {"minutes": "60"},
}
DAY_MS = HOUR * 24 // 1_000


@pytest.fixture
def slow(bounds: Callable[..., None]) -> None:
    """Limit each request to counting five rows and handling one job."""
    bounds(scanned_rows=5, batch_rows=5, count_seconds=0, action_seconds=0, changed_jobs=1)


@dataclass
class ListedJobs:
    """The jobs of one list, and late ones that look as if they had been there before."""

    stock: ShardApis
    list_name: str
    #: How old the next ids are, in ms; and how many were made.
    age_ms: int = 0
    ids: int = 0

    def add(self, number: int) -> str:
        """Add a job to the list."""
        self.ids += 1
        raw_id = ((time_ns() // 1_000_000 - self.age_ms << 48) + self.ids).to_bytes(12)
        if self.list_name == "failed":
            return add_dead(self.stock, number, raw_id=raw_id)
        if self.list_name == "running":
            text_id = add(self.stock, number, raw_id=raw_id, delay=None)
            claim(self.stock, text_id)
            return text_id
        return add(self.stock, number, raw_id=raw_id, delay=None if self.list_name == "ready" else HOUR + number)

    def add_late(self, number: int) -> str:
        """Add a job from a host whose clock is a day behind; a failed one failed a day ago."""
        self.age_ms = DAY_MS
        text_id = self.add(number)
        if self.list_name == "failed":
            self.stock.client.zincrby(self.stock.keys("dead_letters"), -DAY_MS * 1_000, raw(text_id))
        if self.list_name == "ready":
            (member,) = [each for each in self.stock.client.zrange(self._ready, 0, -1) if each.startswith(raw(text_id))]
            self.stock.client.zincrby(self._ready, -DAY_MS, member)
        self.age_ms = 0
        return text_id

    def all(self, browser: Client, action: str, **query: object) -> Any:
        """Request an action for all matching jobs."""
        address = (
            page("queue_detail", "default", **query) if self.list_name == "ready" else page(self.list_name, **query)
        )
        if not BULK_ACTIONS[action].in_menu:
            return form_to(browser.get(address), "/action/", button=action).post(browser, action=action)
        return request_action(browser, address, action, all="yes")

    def look(self, text_id: str) -> tuple[str, int, str, bool]:
        """Return the properties of a job that actions change."""
        found = self.stock.inspection.find(raw(text_id))
        return state(self.stock, text_id), found.moment_us, found.job.queue if found.job else "", found.stops

    @property
    def _ready(self) -> str:
        return self.stock.keys.ready("default")


@pytest.fixture
def listed_jobs(stock: ShardApis) -> Callable[[str], ListedJobs]:
    """Return a function that makes the jobs of a list."""
    return lambda list_name: ListedJobs(stock, list_name)


def test_a_long_count_ends_on_a_confirm_page_without_an_address(
    browser: Client, listed_jobs: Callable[[str], ListedJobs], slow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "_LONGEST_ADDRESS", 0)
    jobs = listed_jobs("failed")
    mine = [jobs.add(number) for number in range(7)]
    asked = go_on_counting(browser, jobs.all(browser, "retry", q="noop"))
    assert asked.wsgi_request.method == "POST" and "Retry 7 failed jobs?" in text(asked)
    assert "7 jobs retried." in result(browser, continue_to_end(browser, confirm(browser, asked)))
    assert {jobs.look(each)[0] for each in mine} == {"ready"}


def go_on_counting(browser: Client, response: Any) -> Any:
    """Press Continue until the number is known."""
    for _ in range(60):
        if "match so far" not in text(response):
            return response
        response = form_to(response, "/action/").post(browser)
    raise AssertionError("it never ends")


#: All that the page of a list offers: tests/admin/tenants/test_cancel.py has the bound of a tenant's jobs.
_EACH = [
    (name, list_name)
    for name, action in BULK_ACTIONS.items()
    if action.in_menu or name == "cancel_all"
    for list_name in action.job_lists
]


@pytest.mark.parametrize(("action", "list_name"), _EACH)
def test_no_action_touches_more_than_were_confirmed(
    action: str,
    list_name: str,
    browser: Client,
    listed_jobs: Callable[[str], ListedJobs],
    slow: None,
    bounds: Callable[..., None],
) -> None:
    bounds(untyped_jobs=3)
    jobs = listed_jobs(list_name)
    mine = [jobs.add(number) for number in range(7)]
    query: dict[str, object] = {} if action == "cancel_all" else {"q": "noop"}
    response = jobs.all(browser, action, **query)
    response = go_on_counting(browser, response)
    assert re.search(r"\b7\b", text(response))
    late = [jobs.add_late(number) for number in range(4)]
    before = {each: jobs.look(each) for each in mine + late}
    typed = (
        {"typed_confirmation": "default" if action == "cancel_all" else "7"} if BULK_ACTIONS[action].destructive else {}
    )
    response = confirm(browser, response, **typed, **PARAMETERS.get(action, {}))
    for _ in range(20):
        if response.status_code == 302:
            break
        assert 'max="7"' in response.content.decode()
        assert int(re.findall(r'value="([0-9]+)" aria-label', response.content.decode())[0]) <= 7
        response = form_to(response, "/action/").post(browser)
    message = result(browser, response)
    changed = [each for each in before if jobs.look(each) != before[each]]
    assert len(changed) == 7, message
    assert "More jobs match now. They came after the count and were left alone." in message
    assert LogEntry.objects.count() == 7


def test_the_bound_holds_for_actions_with_one_log_row(
    browser: Client, listed_jobs: Callable[[str], ListedJobs], slow: None, bounds: Callable[..., None]
) -> None:
    bounds(logged_jobs=2)
    jobs = listed_jobs("failed")
    for number in range(7):
        jobs.add(number)
    response = go_on_counting(browser, jobs.all(browser, "delete", q="noop"))
    for number in range(4):
        jobs.add_late(number)
    result(browser, continue_to_end(browser, confirm(browser, response)))
    assert LogEntry.objects.get().change_message.startswith("7 jobs deleted, ")
    assert jobs.stock.inspection.counts().dead == 4


def test_a_long_count_continues_until_the_number_is_known(browser: Client, stock: ShardApis, slow: None) -> None:
    for number in range(12):
        add_dead(stock, number, **({"needle": 1} if number % 2 else {}))
    response = request_action(browser, page("failed", q="needle"), "delete", all="yes")
    assert "3 match so far. Searched 5." in text(response) or "2 match so far. Searched 5." in text(response)
    shown = response.content.decode()
    assert "<progress" not in shown, "nobody knows the end"
    assert 'name="typed_confirmation"' not in shown
    response = go_on_counting(browser, response)
    assert "Delete 6 failed jobs?" in text(response)
    assert text(response).count("noop(") == 5
    assert stock.inspection.counts().dead == 12
    assert "6 jobs deleted." in result(browser, continue_to_end(browser, confirm(browser, response)))
    assert stock.inspection.counts().dead == 6


def test_nothing_can_be_done_before_the_number_is_known(browser: Client, stock: ShardApis, slow: None) -> None:
    for number in range(12):
        add_dead(stock, number)
    form = form_to(request_action(browser, page("failed", q="noop"), "delete", all="yes"), "/action/")
    for typed in ("5", "12", "yes"):
        assert "match so far" in text(form.post(browser, typed_confirmation=typed, confirmed="yes", counted="yes"))
    assert stock.inspection.counts().dead == 12


def test_a_long_count_without_a_match_says_so(browser: Client, stock: ShardApis, slow: None) -> None:
    for number in range(12):
        add_dead(stock, number)
    form = form_to(browser.get(page("failed")), "/action/", button="delete")
    response = form.post(browser, ("all", "yes"), action="delete", filter="q=none-of-these")
    assert "No such job is left." in result(browser, go_on_counting(browser, response))


def test_all_shards_are_counted(browser: Client, delayq_settings: Any, redis_url: str, slow: None) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": 3}
    parts = [ShardApis(redis_url, clock=ServerClock(), shard=shard, SHARDS=3) for shard in range(3)]
    for number in range(20):
        add_dead(parts[number % 3], number)
    response = go_on_counting(browser, request_action(browser, page("failed", q="noop"), "delete", all="yes"))
    assert "Delete 20 failed jobs?" in text(response)
    assert "20 jobs deleted." in result(browser, continue_to_end(browser, confirm(browser, response)))
    for part in parts:
        part.close()


def test_the_same_form_again_does_nothing_to_later_jobs(
    browser: Client, listed_jobs: Callable[[str], ListedJobs]
) -> None:
    jobs = listed_jobs("scheduled")
    mine = [jobs.add(number) for number in range(3)]
    response = jobs.all(browser, "cancel")
    assert "3 jobs cancelled." in result(browser, confirm(browser, response))
    late = [jobs.add_late(number) for number in range(3)]
    # The person goes back and presses again.
    assert "This was done already and is not done twice." in result(browser, confirm(browser, response))
    assert {state(jobs.stock, each) for each in mine} == {"gone"}
    assert {state(jobs.stock, each) for each in late} == {"scheduled"}


def test_two_tabs_that_continue_one_action_do_it_once(
    browser: Client, listed_jobs: Callable[[str], ListedJobs], slow: None
) -> None:
    jobs = listed_jobs("failed")
    for number in range(4):
        jobs.add(number)
    first = confirm(browser, go_on_counting(browser, jobs.all(browser, "delete")))
    tab, other = form_to(first, "/action/").post(browser), form_to(first, "/action/").post(browser)
    assert "This was done already" in result(browser, other)
    for number in range(5):
        jobs.add_late(number)
    assert "4 jobs deleted." in result(browser, continue_to_end(browser, tab))
    assert jobs.stock.inspection.counts().dead == 5


def test_the_session_keeps_the_last_hundred_requests(browser: Client, stock: ShardApis) -> None:
    session = browser.session
    session["django_delayq.actions"] = {f"earlier {number}": 1 for number in range(99)}
    session.save()
    for _ in range(4):
        add_dead(stock)
        confirm(browser, request_action(browser, page("failed"), "retry", all="yes"))
    kept = list(browser.session["django_delayq.actions"])
    assert kept[:96] == [f"earlier {number}" for number in range(3, 99)]
    assert len(kept) == 100


def test_no_others_are_mentioned_if_none_came(browser: Client, stock: ShardApis) -> None:
    mine = [add(stock, number) for number in range(3)]
    dues = [due_us(stock, each) for each in mine]
    response = request_action(browser, page("scheduled"), "reschedule", all="yes")
    # They still match, but they are the selected ones.
    assert "More match" not in result(browser, confirm(browser, response, **PARAMETERS["reschedule"]))
    assert [due_us(stock, each) for each in mine] != dues


def test_the_result_is_shown_if_redis_fails_during_the_last_look(browser: Client, stock: ShardApis) -> None:
    def break_the_list(**_: object) -> None:
        stock.client.set(stock.keys("dead_letters"), "not a sorted set")

    add_dead(stock)
    response = request_action(browser, page("failed"), "delete", all="yes")
    # The signal comes after the change, and before the last look.
    admin_action.connect(break_the_list)
    try:
        response = confirm(browser, response)
    finally:
        admin_action.disconnect(break_the_list)
    stock.client.delete(stock.keys("dead_letters"))
    assert "1 job deleted." in result(browser, response)
