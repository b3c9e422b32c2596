"""The search field: it leads to a job by its id or key, or to a list with a filter."""

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from django_delayq.admin.lists.filters import Filter
from django_delayq.admin.lists.search_terms import SearchTerms, suggestions, write_term
from django_delayq.job.ids import to_text
from django_delayq.task import registry
from tests.admin.conftest import page
from tests.admin.forms import forms
from tests.admin.jobs import HOUR, NOOP, add, add_dead
from tests.admin.page_content import ids, text
from tests.shard_apis import ShardApis

NOW = 1_800_000_000_000_000


def found(browser: Client, written: str, **query: Any) -> Any:
    """Return the page that a search leads to."""
    return browser.get(page("search", find=written, **query), follow=True)


def applied(written: str, job_filter: Filter | None = None) -> Filter:
    with timezone.override("UTC"):
        return SearchTerms.read(written).apply(job_filter or Filter(), now_us=NOW)


def test_terms_and_text_become_a_filter() -> None:
    assert applied("") == Filter()
    assert applied("order 4711") == Filter(text="order 4711")
    assert applied('task:send  error:"unknown task" order queue:mail 4711 tenant:acme') == Filter(
        task="send", error="unknown task", queue="mail", tenant="acme", text="order 4711"
    )
    assert applied("task: send") == Filter(task="send")
    assert applied("http://x subtask:y") == Filter(text="http://x subtask:y")
    assert applied("task:a task:b") == Filter(task="b")


def test_terms_replace_those_of_the_filter_and_leave_the_rest() -> None:
    before = Filter(task="send", queue="mail", text="old", error_group="00" * 12, count=100, cursor=(5, b"a"))
    assert applied("task:charge", before) == Filter(task="charge", queue="mail", text="old", count=100)
    assert applied("new", before) == Filter(task="send", queue="mail", text="new", error_group="00" * 12, count=100)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("due:1h", Filter(within="1h")),
        ("due:overdue", Filter(within="overdue")),
        ("failed:24h", Filter(within="24h")),
        ("due:2h30m", Filter(to_us=NOW + 5 * HOUR // 2)),
        ("failed:3d", Filter(from_us=NOW - 72 * HOUR)),
        ("due:2027-01-15", Filter(from_us=NOW - 8 * HOUR, to_us=NOW + 16 * HOUR)),
        ("due:2027-01-15..", Filter(from_us=NOW - 8 * HOUR)),
        ("due:2027-01-15T08:00..2027-01-15T09:00", Filter(from_us=NOW, to_us=NOW + HOUR)),
        ("due:2027-01-15T08:00", Filter(at_us=NOW)),
        ("ended:3d", Filter(from_us=NOW - 72 * HOUR)),
        ("ended:2027-01-15T08:00", Filter(to_us=NOW)),
        ("ended:1h outcome:stopped", Filter(within="1h", outcome="cancelled")),
    ],
)
def test_times_are_spans_days_moments_and_ranges(written: str, expected: Filter) -> None:
    assert applied(written, Filter(within="7d", from_us=1, to_us=2)) == expected


@pytest.mark.parametrize(
    "written",
    [
        "due:soon",
        "failed:overdue",
        "due:9" + "9" * 400 + "h",
        "due:999999999d",
        "due:9999-12-31",
        "due:2027-02-30",
        "task:~x",
    ],
)
def test_a_value_that_makes_no_sense_is_reported_on_the_list(written: str, browser: Client) -> None:
    cure = "is no name." if "task" in written else "is no time: write 24h, 2026-12-24,"
    assert cure in text(found(browser, written))


@given(
    st.sampled_from(["task", "queue", "error", "tenant"]), st.text(alphabet=st.characters(), min_size=1, max_size=40)
)
def test_a_term_of_any_name_is_read_as_it_was_written(name: str, value: str) -> None:
    assert SearchTerms.read(write_term(name, value)) == SearchTerms(named={name: value})


def test_suggestions_are_bounded() -> None:
    terms = suggestions(["q" * 300, "mail"], [f"shop.task{number}" for number in range(500)])
    assert terms[0] == "queue:mail"
    assert len(terms) < 30


def test_a_day_on_which_clocks_change_has_25_hours() -> None:
    with timezone.override("Europe/Berlin"):
        found = SearchTerms.read("due:2027-10-31").apply(Filter(), now_us=NOW)
    assert found.to_us is not None and found.from_us is not None
    assert found.to_us - found.from_us == 25 * HOUR


@pytest.mark.parametrize("letter", ["a", "é", "字"])
def test_a_text_that_no_field_takes_is_cut(letter: str, browser: Client) -> None:
    assert browser.get(page("search", find=letter * 3_000), follow=True).status_code == 200


def test_an_id_leads_to_its_job(browser: Client, stock: ShardApis) -> None:
    mine = add(stock)
    assert browser.get(page("search", find=f" {mine} ")).url == page("job_detail", mine)


@pytest.mark.parametrize("delay", [HOUR, None])
def test_a_key_leads_to_the_job_that_holds_it(delay: int | None, browser: Client, stock: ShardApis) -> None:
    mine = add(stock, unique_by="order 4711", delay=delay)
    add(stock, unique_by="order 4712")
    for written in ('key:"order 4711"', f'key:"order 4711" task:{NOOP}', 'task:noop key:"order 4711"'):
        assert browser.get(page("search", find=written)).url == page("job_detail", mine)
    answer = found(browser, 'key:"order 4713"', list="failed")
    assert "No job holds the key “order 4713”." in text(answer)
    assert answer.redirect_chain[-1][0].startswith(page("failed"))


def test_a_key_of_several_tasks_shows_their_jobs(browser: Client, stock: ShardApis) -> None:
    other = next(name for name in registry.names() if name != NOOP)
    mine = {add(stock, unique_by="4711"), add(stock, unique_by="4711", task=other)}
    html = found(browser, "key:4711").content.decode()
    assert all(page("job_detail", each) in html for each in mine)


def test_a_search_goes_to_the_list_that_has_the_jobs(browser: Client, stock: ShardApis) -> None:
    waiting, failed, ready = add(stock, queue="mail"), add_dead(stock), add(stock, delay=None, queue="mail")
    assert ids(found(browser, "error:Broken")) == [failed]
    assert ids(found(browser, "failed:1h task:noop")) == [failed]
    assert ids(found(browser, "due:24h", list="failed")) == [waiting]
    assert ids(found(browser, "queue:mail")) == [waiting]
    assert ids(found(browser, "noop", list="ready", filter="queue=mail")) == [ready]
    assert found(browser, "", list="ready").redirect_chain[-1][0] == page("queues")


def test_the_field_of_a_list_adds_to_its_filter(browser: Client, stock: ShardApis) -> None:
    mine, *_ = add(stock, 4711, queue="mail"), add(stock, 4711), add(stock, 4712, queue="mail")
    [form] = [each for each in forms(browser.get(page("scheduled", queue="mail"))) if each.action == page("search")]
    answer = browser.get(form.action, {**dict(form.fields), "find": "4711"}, follow=True)
    assert ids(answer) == [mine]


def test_a_tenant_is_found(browser: Client, stock: ShardApis) -> None:
    mine, _ = to_text(stock.add(tenant="acme", delay=HOUR), 0), add(stock)
    assert ids(found(browser, "tenant:acme")) == [mine]
