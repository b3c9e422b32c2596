"""Requests that change nothing: without permission, forged, stale, or another person's."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tests.admin.conftest import SITES, page
from tests.admin.forms import form_to
from tests.admin.jobs import HOUR, POSTED, add, add_dead, state
from tests.admin.page_content import link, text
from tests.admin.steps import confirm, request_action, result
from tests.shard_apis import ShardApis

MINUTE = HOUR // 60


@pytest.mark.parametrize("site", SITES)
def test_only_people_who_may_manage_can_post(visitor: Callable[..., Client], site: str, delayq_settings: Any) -> None:
    address = page("action", site=site)
    for method in ("get", "head", "put", "delete", "patch", "options"):
        assert getattr(visitor("manager"), method)(address).status_code == 405
    for kind, status in (("superuser", 302), ("manager", 302), ("viewer", 403), ("staff", 403), ("anonymous", 302)):
        response = visitor(kind).post(address, {"action": "retry", "list": "failed"})
        assert response.status_code == status
        assert ("login" in response.headers.get("Location", "")) == (kind == "anonymous")
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "ADMIN": {"READ_ONLY": True}}
    assert visitor("superuser").post(address, {}).status_code == 403


def test_a_redirect_from_the_login_shows_that_nothing_was_done(browser: Client) -> None:
    response = browser.get(page("action"))
    assert (response.status_code, response.headers["Allow"]) == (405, "POST")
    assert "Your session had ended. Nothing was done." in text(response)
    assert link(response, "Failed jobs") == page("failed")


def test_a_post_without_its_csrf_token_is_refused(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock)
    response = request_action(browser, page("failed"), "delete", mine)
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = browser.cookies
    signed_request = dict(form_to(response, "/action/").fields)["signed_request"]
    assert strict.post(page("action"), {"signed_request": signed_request}).status_code == 403
    assert state(stock, mine) == "dead"


def test_a_form_of_another_person_is_refused(visitor: Callable[..., Client], stock: ShardApis) -> None:
    mine = add_dead(stock)
    response = request_action(visitor("superuser"), page("failed"), "delete", mine)
    form = form_to(response, "/action/")
    other = visitor("manager")
    assert "too old or not yours. Nothing was done." in result(other, form.post(other))
    assert state(stock, mine) == "dead"


def test_a_stale_form_is_refused(browser: Client, stock: ShardApis, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = add_dead(stock)
    response = request_action(browser, page("failed"), "delete", mine)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3_601)
    assert "too old or not yours" in result(browser, confirm(browser, response))
    assert state(stock, mine) == "dead"


_FORGED = [
    "",
    "x",
    "\x00",
    POSTED,
    "9" * 5_000,
    "-1",
    "x" * 1_000_000,
    "queue=%00&from=99999999999999999999&n=x",
]


@pytest.mark.parametrize(
    "name",
    [
        *("action", "list", "row", "all", "filter", "page", "seen_us", "job"),
        *("signed_request", "typed_confirmation", "queue"),
    ],
)
def test_no_forged_field_is_a_server_error(browser: Client, stock: ShardApis, name: str) -> None:
    mine, waiting = add_dead(stock), add(stock)
    form = form_to(browser.get(page("failed")), "/action/")
    confirmed = form_to(request_action(browser, page("scheduled"), "reschedule", waiting), "/action/")
    row = next(box for box in form.boxes if box[0] == "row")
    for value in _FORGED:
        for action in ("delete", "edit", "retry_later"):
            assert form.post(browser, row, **{"action": action, name: value}).status_code in (200, 302)
        assert form.post(browser, **{"action": "cancel_all", "list": "ready", name: value}).status_code in (200, 302)
        assert form.post(browser, **{"action": "retry", "all": "yes", name: value}).status_code in (200, 302)
        assert confirmed.post(browser, **{name: value}).status_code in (200, 302)
    assert state(stock, mine) == "dead"
    assert state(stock, waiting) == "scheduled"
