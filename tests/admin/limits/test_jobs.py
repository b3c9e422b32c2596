"""Jobs with limits on the pages of jobs: which limits they have, what parked ones wait for, and dropped ones."""

from typing import Any

import pytest
from django.test import Client

from django_delayq.job.ids import to_text
from django_delayq.job.job import LimitUse
from django_delayq.job.outcome import Outcome, OutcomeKind
from django_delayq.worker.settlement import decide_settlement
from tests.admin.conftest import page
from tests.admin.content.test_raw_characters import look
from tests.admin.jobs import HOSTILE, NOOP
from tests.admin.limits.conftest import work
from tests.admin.page_content import link, text
from tests.admin.reports import tell
from tests.shard_apis import HOUR, ShardApis

ONE, OF_ANN = LimitUse("single"), LimitUse("single", "ann")


def park(apis: ShardApis, use: LimitUse, *more: LimitUse) -> str:
    """Let a job wait for a limit; return its id as text."""
    apis.add(limits=[use])
    apis.worker().take(1)
    raw_id = apis.add(limits=[use, *more])
    apis.worker().take(1)
    assert apis.where(raw_id) == ["parked:default"]
    return to_text(raw_id, apis.shard.index)


@pytest.mark.parametrize(
    ("use", "name"),
    [(ONE, "single"), (OF_ANN, "single (ann)"), (LimitUse("single", "<b>\x00"), r"single (&lt;b&gt;\x00)")],
)
def test_a_parked_job_says_which_limit_it_waits_for(
    use: LimitUse, name: str, browser: Client, stock: ShardApis
) -> None:
    text_id = park(stock, use)
    for response in (browser.get(page("queue_detail", "default")), browser.get(page("job_detail", text_id))):
        assert text(response).count(f"waits for the limit {name}") == 1
    response = browser.get(page("job_detail", text_id))
    assert f"Limits {name} " in text(response)
    assert link(response, "waits for the limit") == page("limits")


def test_a_job_shows_all_of_its_limits(browser: Client, stock: ShardApis) -> None:
    text_id = to_text(stock.add(limits=[ONE, LimitUse("stripe"), LimitUse("slow", HOSTILE[:60])]), 0)
    response = browser.get(page("job_detail", text_id))
    assert "Limits single, stripe, slow (&lt;script&gt;" in text(response)
    assert "<script>alert(1)" not in look(response)
    assert "waits for the limit" not in text(response)
    without = to_text(stock.add(), 0)
    assert "<dt>Limits</dt>" not in browser.get(page("job_detail", without)).content.decode()


def test_a_job_whose_task_is_paused_says_so(browser: Client, stock: ShardApis) -> None:
    stock.operations.limits.pause_task(NOOP, by="ann")
    text_id = to_text(stock.add(), 0)
    assert work(stock) == 0
    for response in (browser.get(page("queue_detail", "default")), browser.get(page("job_detail", text_id))):
        assert text(response).count("its task is paused") == 1


def test_a_parked_job_that_cannot_be_read_names_the_declared_limit(
    browser: Client, stock: ShardApis, delayq_settings: Any
) -> None:
    text_id = park(stock, OF_ANN)
    stock.client.hset(stock.keys("jobs"), bytes.fromhex(text_id[:24]), b"\xff")
    address = page("queue_detail", "default")
    assert "waits for the limit single " in text(browser.get(address))
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "LIMITS": {}}
    assert "waits for a limit " in text(browser.get(address))


def test_the_value_of_a_limit_is_hidden_as_the_unique_key_is(
    browser: Client, stock: ShardApis, registered: Any
) -> None:
    text_id = park(stock, OF_ANN)
    # All arguments of an unknown task are hidden.
    registered({})
    response = browser.get(page("job_detail", text_id))
    assert "Limits single (•••)" in text(response)
    assert "(ann)" not in text(response)
    assert "(ann)" not in text(browser.get(page("queue_detail", "default")))
    revealed = browser.post(page("job_detail", text_id))
    assert "Limits single (ann)" in text(revealed)


def test_a_dropped_job_whose_result_is_kept_says_so(browser: Client, stock: ShardApis) -> None:
    raw_id = stock.add(ttl=HOUR)
    worker = stock.worker()
    (claim,) = worker.take(1).claims
    outcome = Outcome(kind=OutcomeKind.DROPPED, error="A limit kept it from beginning.")
    assert not worker.take(0, settle=[decide_settlement(claim, outcome, worker="w")]).lost
    said = text(browser.get(page("job_detail", to_text(raw_id, 0))))
    assert "Dropped" in said and "Cancelled" not in said


def test_the_chart_of_the_last_hour_shows_dropped_jobs(browser: Client, stock: ShardApis) -> None:
    assert "ropped" not in text(browser.get(page("overview")))
    tell(stock, task=NOOP, done=1, dropped=3)
    said = text(browser.get(page("overview")))
    assert "3 dropped." in said and "Dropped" in said
