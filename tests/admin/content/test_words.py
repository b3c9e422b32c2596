"""Words on the pages: none of the words that other dashboards use otherwise, or that only this code knows."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from django_delayq.admin.actions.bulk_actions import BULK_ACTIONS
from tests.admin.conftest import page
from tests.admin.page_content import PAGES, words
from tests.admin.steps import confirm, request_action

pytestmark = pytest.mark.usefixtures("few_tasks")

#: What pages said once. A state is Scheduled, Ready, Running or Failed; a task is a function, a job what is enqueued.
_FORMER = re.compile(
    r"dead letter|\bdead\b|\bdied?\b|\bdies\b|\bdeath|\bpending\b|\bclaimed\b|\bfunctions\b|\bprocesses\b"
    r"|dispatch lag|\blag\b|late by|\bmoved/|\bplanted\b|\bpromoted? due|audit log|who did what|who looks"
    r"|saw (what is )?hidden|made \d+ run now|set \d+ to be|that is not it|done yet|it goes on|match(es)? in \d",
    re.IGNORECASE,
)
_STATES = ("scheduled", "ready", "running", "failed")


def addresses(jobs: dict[str, str]) -> Iterator[str]:
    """Yield the addresses of pages of all kinds."""
    yield from (page(name) for name in PAGES)
    yield from (page("job_detail", text_id) for text_id in jobs.values())
    yield from (page("queue_detail", "mail"), page("queue_tenants", "mail"), page("recurring_calendar"))
    yield from (page("job_detail", "0123456789abcdef01234567-0"), page("recurring_schedule", "x"), page("action"))
    yield from (page(name, q="nothing like that") for name in _STATES if name != "ready")
    yield page("failed", group="error")


def former_words(response: Any) -> list[str]:
    """Return the former words in the text of a page."""
    return [found[0] for found in _FORMER.finditer(words(response.content.decode()))]


def test_no_page_shows_former_words(browser: Client, jobs: dict[str, str]) -> None:
    for address in addresses(jobs):
        assert former_words(browser.get(address)) == [], address


def test_no_empty_page_shows_them(browser: Client) -> None:
    for name in PAGES:
        assert former_words(browser.get(page(name))) == [], name


@pytest.mark.parametrize("action", [each for each in BULK_ACTIONS.values() if each.in_menu], ids=lambda each: each.name)
def test_no_step_of_an_action_shows_them(action: Any, browser: Client, jobs: dict[str, str]) -> None:
    fields = {"reschedule": {"shift": "5", "unit": "60"}, "move": {"queue": "mail"}, "retry_later": {"minutes": "5"}}
    # The second time nothing is left to do.
    for name in action.job_lists:
        address = page("queue_detail", "mail") if name == "ready" else page(name)
        if action.direct and not action.in_menu:
            # A message offers it.
            fields = {"list": name, "row": f"{jobs[name]}.5", "seen_us": "5", "left_us": "5"}
            for _ in range(2):
                done = browser.post(page("action"), {**fields, "action": action.name})
                assert former_words(browser.get(done.url)) == []
            continue
        asked = request_action(browser, address, action.name, jobs[name])
        if action.direct:
            assert former_words(browser.get(asked.url)) == []
            # A page asks about several.
            asked = request_action(browser, address, action.name, all="yes")
        assert former_words(asked) == []
        assert former_words(confirm(browser, asked, shift="x", queue="", minutes="0", grace_s="-1")) == []
        for _ in range(2):
            done = confirm(browser, asked, **fields.get(action.name, {}))
            assert former_words(browser.get(done.url)) == []
