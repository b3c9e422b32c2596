"""Expiry on the pages: when a job expires, which ones are overdue, and how an expired one is shown."""

import re

import pytest
from django.test import Client

from django_delayq.job.job import Expiry, State
from django_delayq.job.outcome import Outcome, OutcomeKind
from django_delayq.worker.settlement import decide_settlement
from tests.admin.conftest import page
from tests.admin.jobs import HOUR, add, add_dead, claim, raw
from tests.admin.page_content import text
from tests.shard_apis import ShardApis

#: A moment in 2001, and one in 2100.
PAST, FUTURE = Expiry(moment_us=1_000_000_000_000_000), Expiry(moment_us=4_102_444_800_000_000)


def marked(browser: Client, address: str) -> int:
    """Return how many rows have the mark; the filter of a list has the same word."""
    return len(re.findall(r'title="Its expiry is over[^>]*>overdue</span>', browser.get(address).content.decode()))


def test_an_overdue_job_is_marked_in_the_lists(browser: Client, stock: ShardApis) -> None:
    for list_name, delay in (("scheduled", HOUR), ("ready", None)):
        address = page("scheduled") if list_name == "scheduled" else page("queue_detail", "default")
        add(stock, delay=delay, expiry=FUTURE)
        add(stock, delay=delay)
        assert marked(browser, address) == 0
        add(stock, delay=delay, expiry=PAST)
        assert marked(browser, address) == 1


def test_the_page_of_a_job_shows_when_it_expires(browser: Client, stock: ShardApis) -> None:
    never, later = add(stock), add(stock, expiry=FUTURE)
    late = add(stock, delay=None, expiry=Expiry(moment_us=PAST.moment_us, dead=True))
    shown = {job: text(browser.get(page("job_detail", job))) for job in (never, later, late)}
    assert "Expires" not in shown[never]
    assert "Expires" in shown[later] and "2100" in shown[later] and "overdue" not in shown[later]
    assert "overdue" in shown[late] and "then it fails" in shown[late]
    _, _ = claim(stock, late)
    assert "overdue" not in text(browser.get(page("job_detail", late)))


@pytest.mark.parametrize("dead", [False, True])
def test_an_expired_job_is_shown_as_such(browser: Client, stock: ShardApis, dead: bool) -> None:
    job = add(stock, delay=None, expiry=Expiry(moment_us=PAST.moment_us, dead=dead), ttl=HOUR)
    worker, mine = claim(stock, job)
    outcome = Outcome(kind=OutcomeKind.EXPIRED, error="The job expired at noon.")
    worker.take(0, settle=[decide_settlement(mine, outcome, worker="w")])
    assert stock.inspection.find(raw(job)).state is (State.DEAD if dead else State.EXPIRED)
    shown = text(browser.get(page("job_detail", job)))
    if dead:
        assert "expired: The job expired at noon." in shown
        assert "expired" in text(browser.get(page("failed")))
    else:
        assert "Expired" in shown and "Cancelled" not in shown


def test_a_dead_letter_of_another_reason_is_not_overdue(browser: Client, stock: ShardApis) -> None:
    job = add_dead(stock, expiry=PAST)
    assert "overdue" not in text(browser.get(page("job_detail", job)))
