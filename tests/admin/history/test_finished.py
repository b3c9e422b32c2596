"""The page of finished jobs, and what the page of a job that is gone shows of its end."""

import os
from typing import Any

import pytest
from django.test import Client

from django_delayq.admin.lists.filters import url_name
from django_delayq.job.ending import EndingRow
from django_delayq.job.ids import next_id, to_text
from django_delayq.store.process_reports import ProcessReports
from tests.admin.conftest import page
from tests.admin.forms import forms
from tests.admin.jobs import HOSTILE, add, add_dead
from tests.admin.page_content import link, rows, text
from tests.shard_apis import HOUR, SECOND, ShardApis

SEND, SYNC = "shop.tasks.send", "crm.tasks.sync"


def end(
    ago_us: int,
    *,
    now_us: int,
    raw_id: bytes = b"",
    task: str = SEND,
    queue: str = "mail",
    state: str = "done",
    run_us: int | None = 38_000,
    kept: bool = False,
) -> EndingRow:
    """Return an ending of some time ago."""
    lag_us = None if run_us is None else 400_000
    due_us = now_us - ago_us - (lag_us or 0) - (run_us or 0)
    return raw_id or next_id(), task, queue, 1, state, due_us, lag_us, run_us, int(kept), ""


def report(stock: ShardApis, *ends: EndingRow, name: str = "web1:4411") -> None:
    """Report endings, as a worker does."""
    ProcessReports(stock.shard).report(os.urandom(8), "worker", {"name": name}, {}, ends)


def ids(browser: Client, **query: object) -> list[str]:
    """Return the ids of the rows, from top to bottom."""
    response = browser.get(page("finished", **query))
    assert response.status_code == 200
    return [line.ending.id for line in response.context_data["lines"]]


def many(stock: ShardApis, number: int) -> list[str]:
    """Report endings of two workers in turn; return their ids, newest first."""
    ends = [end(each * SECOND, now_us=stock.clock.now_us) for each in range(number)]
    for part in (ends[::2], ends[1::2]):
        report(stock, *part[::-1])
    return [to_text(each[0], 0) for each in ends]


def test_a_row_says_what_ran_when_and_where(browser: Client, stock: ShardApis) -> None:
    report(stock, end(SECOND, now_us=stock.clock.now_us, kept=True))
    [cells] = rows(browser, "finished").values()
    task, outcome, took, delay, queue, attempt, worker, _ = cells
    assert [task, outcome, took, delay] == ["send", "done with result", "38 ms", "400 ms"]
    assert [queue, attempt, worker] == ["mail", "2", "web1:4411"]


@pytest.mark.parametrize(
    ("state", "shown"), [("dead", "failed"), ("cancelled", "stopped"), ("expired", "expired"), ("dropped", "dropped")]
)
def test_an_outcome_has_a_name(state: str, shown: str, browser: Client, stock: ShardApis) -> None:
    report(stock, end(SECOND, now_us=stock.clock.now_us, state=state, run_us=None))
    [cells] = rows(browser, "finished").values()
    assert cells[1:4] == [shown, "–", "–"]


def test_pages_follow_one_another_in_both_directions(browser: Client, stock: ShardApis) -> None:
    expected = many(stock, 60)
    answer = browser.get(page("finished", n=25))
    assert ids(browser, n=25) == expected[:25]
    assert "Rows 1–25 of 60" in text(answer)
    assert not link(answer, "‹ Before")
    found, answers = list[str](), []
    for _ in range(3):
        answers.append(answer)
        found += [line.ending.id for line in answer.context_data["lines"]]
        following = link(answer, "After")
        answer = browser.get(following) if following else answer
    assert found == expected and not following
    for earlier in answers[1::-1]:
        answer = browser.get(link(answer, "‹ Before"))
        shown = [line.ending.id for line in answer.context_data["lines"]]
        assert shown == [line.ending.id for line in earlier.context_data["lines"]]
    last = browser.get(link(answer, "Last"))
    assert [line.ending.id for line in last.context_data["lines"]] == expected[-25:]


def test_filters_select_rows(browser: Client, stock: ShardApis) -> None:
    now_us = stock.clock.now_us
    ends = [
        end(SECOND, now_us=now_us),
        end(2 * SECOND, now_us=now_us, task=SYNC),
        end(3 * SECOND, now_us=now_us, queue="bulk"),
        end(4 * SECOND, now_us=now_us, state="dead"),
        end(2 * HOUR, now_us=now_us),
    ]
    report(stock, *ends)
    other = end(5 * SECOND, now_us=now_us)
    report(stock, other, name="web2:7")
    names = [to_text(each[0], 0) for each in (*ends, other)]
    for query, wanted in (
        ({"task": "sync"}, [1]),
        ({"task": f"={SEND}", "queue": "mail", "outcome": "done", "within": "1h"}, [0, 5]),
        ({"queue": "bulk"}, [2]),
        ({"outcome": "dead"}, [3]),
        ({"within": "1h"}, [0, 1, 2, 3, 5]),
        ({"to": now_us - HOUR}, [4]),
        ({"q": "WEB2"}, [5]),
        ({"q": names[2][8:]}, [2]),
        ({"outcome": "nonsense"}, [0, 1, 2, 3, 5, 4]),
    ):
        assert ids(browser, **query) == [names[each] for each in wanted], query
    answer = browser.get(page("finished", task="sync", n="x"))
    assert "“n” is not understood" in text(answer)
    assert link(answer, "Clear") == page("finished")


def searched(browser: Client, written: str, **query: object) -> Any:
    """Return the page to which a search leads."""
    return browser.get(page("search", find=written, **query), follow=True)


def test_the_search_field_filters_and_chips_say_how(browser: Client, stock: ShardApis) -> None:
    now_us = stock.clock.now_us
    ends = [
        end(SECOND, now_us=now_us, state="dead"),
        end(2 * SECOND, now_us=now_us, task=SYNC, state="dead", queue="bulk"),
        end(3 * SECOND, now_us=now_us, task=SYNC),
        end(2 * HOUR, now_us=now_us, state="dead"),
    ]
    report(stock, *ends)
    names = [to_text(each[0], 0) for each in ends]
    for written, wanted in (
        ("task:sync", [1, 2]),
        ("queue:bulk", [1]),
        ("outcome:failed ended:1h", [0, 1]),
        ("crm", [1, 2]),
        ("outcome:done", [2]),
        ("", [0, 1, 2, 3]),
    ):
        answer = searched(browser, written, list="finished")
        assert answer.redirect_chain[-1][0].startswith(page("finished"))
        assert [line.ending.id for line in answer.context_data["lines"]] == [names[each] for each in wanted], written
    answer = searched(browser, "outcome:failed ended:1h task:sync")
    shown = text(answer)
    for chip in ("task sync ×", "outcome failed ×", "ended last hour ×"):
        assert chip in shown
    without = browser.get(link(answer, '\\s*<span class="delayq-muted">outcome'))
    assert [line.ending.id for line in without.context_data["lines"]] == names[1:3]
    [form] = [each for each in forms(answer) if each.action == page("search")]
    assert dict(form.fields)["list"] == "finished"
    assert ids(browser, outcome="dead", task="sync") == [names[1]]


@pytest.mark.parametrize(
    ("written", "leads_to"),
    [
        ("outcome:stopped", "finished"),
        ("ended:24h", "finished"),
        ("ended:2027-01-15T08:00", "finished"),
        ("error:Timeout", "failed"),
        ("outcome:failed error:Timeout", "failed"),
        ("failed:1h", "failed"),
        ("due:1h", "scheduled"),
        ("tenant:acme", "scheduled"),
    ],
)
def test_a_term_leads_to_the_list_that_knows_it(written: str, leads_to: str, browser: Client) -> None:
    answer = searched(browser, written, list="finished", filter="outcome=done&n=25")
    address = answer.redirect_chain[-1][0]
    assert address.startswith(page(leads_to))
    assert ("outcome" in address) is (leads_to == "finished")
    assert "n=25" in address


def test_a_list_of_others_leaves_out_what_nobody_records_of_finished_jobs(browser: Client) -> None:
    answer = searched(browser, "outcome:done", list="failed", filter="error=Timeout&tenant=acme&queue=mail")
    assert answer.redirect_chain[-1][0] == page("finished", queue="mail", outcome="done")


def test_an_outcome_that_there_is_not_is_reported(browser: Client) -> None:
    said = text(searched(browser, "outcome:<b>"))
    assert "“&lt;b&gt;” is no outcome: write one of done, failed, stopped, expired, dropped." in said


def test_a_search_offers_finished_jobs_too(browser: Client, stock: ShardApis, delayq_settings: Any) -> None:
    report(stock, end(SECOND, now_us=stock.clock.now_us, task=SYNC))
    answer = searched(browser, "task:sync")
    assert answer.redirect_chain[-1][0] == page("scheduled", task="sync")
    assert link(answer, "Look in Finished") == page("finished", task="sync")
    assert not link(searched(browser, "tenant:acme task:sync"), "Look in Finished")
    assert not link(browser.get(page("finished", task="sync")), "Look in Finished")
    assert not link(browser.get(page("scheduled")), "Look in Finished")
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "FINISHED_KEPT": 0}
    assert not link(searched(browser, "task:sync"), "Look in Finished")


def test_a_filter_stays_on_the_next_page(browser: Client, stock: ShardApis) -> None:
    many(stock, 30)
    report(stock, *(end(HOUR + each, now_us=stock.clock.now_us, state="dead") for each in range(30)))
    answer = browser.get(link(browser.get(page("finished", n=25, outcome="dead")), "After"))
    assert {line.ending.state for line in answer.context_data["lines"]} == {"dead"}
    assert "Rows 26–30 of 30" in text(answer)


def test_an_id_leads_to_its_job(browser: Client, stock: ShardApis) -> None:
    mine = add(stock)
    assert browser.get(page("finished", q=mine)).headers["Location"] == page("job_detail", mine)


def test_an_empty_page_says_why(browser: Client, stock: ShardApis, delayq_settings: Any) -> None:
    assert "No job has ended." in text(browser.get(page("finished")))
    assert "Nothing here matches." in text(browser.get(page("finished", queue="bulk")))
    assert ">Finished</a>" in browser.get(page("running")).content.decode()
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "FINISHED_KEPT": 0}
    assert "is 0" in text(browser.get(page("finished")))
    assert ">Finished</a>" not in browser.get(page("running")).content.decode()


def test_the_page_of_a_job_that_is_gone_shows_its_end(browser: Client, stock: ShardApis) -> None:
    ended = end(SECOND, now_us=stock.clock.now_us)
    report(stock, ended)
    mine = to_text(ended[0], 0)
    answer = browser.get(page("job_detail", mine))
    assert answer.status_code == 200
    shown = text(answer)
    assert "Ended job" in shown and "There is no job" not in shown
    for each in (SEND, "done", "web1:4411", "38 ms", "400 ms"):
        assert each in shown
    other = to_text(next_id(), 0)
    assert f"There is no job {other} any more" in text(browser.get(page("job_detail", other)))


def test_a_row_of_a_failed_job_leads_to_its_error(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock)
    report(stock, end(SECOND, now_us=stock.clock.now_us, raw_id=bytes.fromhex(mine[:24]), state="dead"))
    assert "could not send" in text(browser.get(link(browser.get(page("finished")), "send")))


def test_hostile_names_are_shown_as_text(browser: Client, stock: ShardApis) -> None:
    ends = [end(SECOND, now_us=stock.clock.now_us, task=name, queue=name) for name in (HOSTILE, "", "x" * 5_000)]
    report(stock, *ends, name=HOSTILE)
    stock.client.lpush(stock.keys("finished"), b"1 1 \xff<script>", b"")
    for query in ({}, {"queue": url_name(HOSTILE), "task": url_name(HOSTILE)}):
        answer = browser.get(page("finished", **query))
        assert answer.status_code == 200
        assert "<script>alert" not in answer.content.decode()
    assert ids(browser, queue=url_name(HOSTILE)) == [to_text(ends[0][0], 0)]


@pytest.mark.parametrize("query", [{"after": "end"}, {"before": "0."}, {"after": "1e3.ff"}, {"after": "x"}])
def test_any_position_is_a_page(query: dict[str, str], browser: Client, stock: ShardApis) -> None:
    many(stock, 3)
    assert browser.get(page("finished", **query)).status_code == 200
