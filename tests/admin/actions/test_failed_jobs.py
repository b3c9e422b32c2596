"""Actions on failed jobs: retry, retry later, edit the arguments."""

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_delayq.clock import ServerClock
from tests.admin.conftest import page
from tests.admin.forms import form_to
from tests.admin.jobs import HOUR, SUMMER_NOON, SUMMER_NOON_US, add, add_dead, due_us, state
from tests.admin.page_content import text
from tests.admin.steps import confirm, continue_to_end, request_action, result
from tests.shard_apis import ShardApis

MINUTE = HOUR // 60


@pytest.mark.parametrize("query", [{}, {"q": "noop"}])
@pytest.mark.parametrize("shards", [1, 2])
def test_failed_jobs_are_spread_evenly_over_minutes(
    browser: Client,
    delayq_settings: Any,
    redis_url: str,
    stock: ShardApis,
    bounds: Callable[..., None],
    query: dict[str, str],
    shards: int,
) -> None:
    """Also over several requests, in each shard."""
    bounds(action_seconds=0, changed_jobs=3, batch_rows=5)
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": shards}
    for shard in range(shards):
        apis = ShardApis(redis_url, clock=ServerClock(), shard=shard, SHARDS=shards)
        mine = [add_dead(apis, number) for number in range(10)]
        apis.close()
    response = request_action(browser, page("failed", **query), "retry_later", all="yes")
    response = continue_to_end(browser, confirm(browser, response, minutes="60"))
    assert f"{10 * shards} retries scheduled evenly over " in result(browser, response)
    dues = [due_us(apis, each) for each in mine]
    gaps = {round((later - earlier) / MINUTE, 3) for earlier, later in pairwise(dues)}
    assert gaps == {6}
    assert apis.client.hlen(apis.keys("spreads")) == 0


def test_selected_failed_jobs_are_spread_evenly(browser: Client, stock: ShardApis) -> None:
    mine = [add_dead(stock, number) for number in range(4)]
    response = request_action(browser, page("failed"), "retry_later", *mine[:2])
    result(browser, confirm(browser, response, minutes="60"))
    dues = sorted(due_us(stock, each) for each in mine[:2])
    assert round((dues[1] - dues[0]) / MINUTE, 3) == 30


def test_failed_jobs_are_retried_at_a_moment(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock)
    result(
        browser,
        confirm(browser, request_action(browser, page("failed"), "retry_later", mine), moment=SUMMER_NOON),
    )
    assert state(stock, mine) == "scheduled"
    assert abs(due_us(stock, mine) - SUMMER_NOON_US) < MINUTE


def test_a_failed_job_whose_key_is_held_is_reported(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock, unique_by="one")
    add(stock, unique_by="one")
    message = result(browser, request_action(browser, page("failed"), "retry", mine))
    assert "0 jobs retried. 1 was left alone, because another job holds its key." in message


def test_arguments_are_edited_and_retried(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock, 1, "ä", token="hidden-value", task="tests.sample_app.tasks.noop")
    response = browser.get(page("job_detail", mine))
    response = form_to(response, "/action/", button="edit").post(browser, action="edit")
    form = form_to(response, "/action/")
    assert json.loads(dict(form.fields)["args"]) == [1, "ä"]
    assert json.loads(dict(form.fields)["kwargs"]) == {"token": "hidden-value"}
    assert LogEntry.objects.get().change_message == "Revealed hidden values"
    for args in (
        "",
        "{",
        "{}",
        "[" * 100_000,
        "[NaN]",
        "[" + "[" * 70 + "]" * 70 + "]",
        "\x00",
        '["' + "x" * 300_000 + '"]',
    ):
        response = form.post(browser, args=args)
        assert "errorlist" in response.content.decode() or response.status_code == 302, args[:20]
        assert state(stock, mine) == "dead"
    assert "1 job retried." in result(browser, form.post(browser, args='[2, "ö"]', kwargs="{}"))
    found = stock.inspection.find(bytes.fromhex(mine[:24]))
    assert found.state == "ready"
    assert found.job is not None
    assert (found.job.args, found.job.kwargs) == ([2, "ö"], {})
    assert "superuser Retried with other arguments" in text(browser.get(page("job_detail", mine)))


def test_arguments_that_do_not_fit_the_function_are_refused(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock, task="tests.sample_app.tasks.nap")
    response = form_to(browser.get(page("job_detail", mine)), "/action/", button="edit").post(browser, action="edit")
    response = confirm(browser, response, args="[1, 2]", kwargs="{}")
    assert "do not fit the function: too many positional arguments" in text(response)
    assert state(stock, mine) == "dead"


def test_people_who_may_not_see_arguments_may_not_edit_them(visitor: Callable[..., Client], stock: ShardApis) -> None:
    browser, mine = visitor("manager"), add_dead(stock, token="hidden-value")
    form = form_to(browser.get(page("job_detail", mine)), "/action/", button="retry")
    assert not form.offers("edit")
    response = form.post(browser, action="edit")
    assert response.status_code == 403
    assert "hidden-value" not in response.content.decode()
    seen = add_dead(stock, 5)
    form = form_to(browser.get(page("job_detail", seen)), "/action/", button="edit")
    assert "[\n  5\n]" in form.post(browser, action="edit").content.decode().replace("&quot;", '"')
