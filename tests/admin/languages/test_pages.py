"""Pages in each language: none of our English sentences is on them, with jobs and without."""

import re
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from django.test import Client

from django_delayq.admin.actions.bulk_actions import BULK_ACTIONS
from tests.admin.conftest import page
from tests.admin.forms import form_to
from tests.admin.languages.catalogs import LANGUAGES, extracted, read
from tests.admin.page_content import PAGES
from tests.admin.steps import confirm, request_action, undo

pytestmark = pytest.mark.usefixtures("few_tasks")

#: Shorter texts are often words of a name or an argument as well.
_SHORTEST = 13


#: A text without its placeholders: its longest part, and a pattern with anything for them.
Sentence = tuple[str, re.Pattern[str]]


def sentences(language: str) -> list[Sentence]:
    """Return our English texts that read differently in a language."""
    same = {form for each in read(language) if each.id for form in (each.string, *each.string) if form in each.id}
    found = []
    for message in extracted():
        for form in (message.id,) if isinstance(message.id, str) else message.id:
            words = re.sub(r"%\(\w+\)s|%s|%%|<[^>]*>", "", form)
            if len(words.strip()) >= _SHORTEST and " " in words.strip() and form not in same:
                parts = re.split(r"%%\w|%\(\w+\)s|%s|%%|<[^>]*>", form)
                pattern = re.compile(r"(?<!\w)" + ".{0,80}?".join(map(re.escape, parts)) + r"(?!\w)")
                found.append((max(parts, key=len), pattern))
    return found


def english(response: Any, patterns: list[Sentence]) -> list[str]:
    """Return the English texts on a page, those in attributes included."""
    # The messages are above our part of the page.
    html = re.split(r'<ul class="messagelist|<div id="delayq"', response.content.decode(), maxsplit=1)[-1]
    whole = " ".join(unescape(re.sub(r"</?(?:span|strong|code|wbr|a|bdi)\b[^>]*>", "", html)).split())
    text = f"{whole} {unescape(html)}"
    # Most parts are not there, which is known much sooner than by a pattern.
    return [pattern.pattern for part, pattern in patterns if part in text and pattern.search(text)]


def addresses(jobs: dict[str, str]) -> Iterator[tuple[str, int]]:
    """Yield addresses of pages of all kinds, with their status."""
    yield from ((page(name), 200) for name in PAGES)
    yield from ((page("job_detail", text_id), 200) for text_id in jobs.values())
    yield from ((page(name, "mail"), 200) for name in ("queue_detail", "queue_tenants"))
    yield from ((page(name, q="nothing like that"), 200) for name in ("scheduled", "running", "failed", "finished"))
    yield from ((page(name, span="week"), 200) for name in ("overview",))
    yield page("queue_detail", "mail", span="hour"), 200
    yield page("task_detail", "tests.sample_app.tasks.noop"), 200
    yield page("task_detail", "not.registered", span="week"), 200
    yield page("recurring_calendar"), 200
    yield page("coming", compare=1), 200
    yield page("failed", group="error"), 200
    yield page("scheduled", to="never"), 200
    yield page("job_detail", "0123456789abcdef01234567-0"), 404
    yield page("recurring_schedule", "x"), 404
    yield page("action"), 405


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_page_has_an_english_sentence(language: str, browser: Client, jobs: dict[str, str]) -> None:
    patterns = sentences(language)
    for address, status in addresses(jobs):
        response = browser.get(address, headers={"accept-language": language.replace("_", "-")})
        assert response.status_code == status, address
        assert english(response, patterns) == [], address


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_empty_page_has_one(language: str, browser: Client) -> None:
    patterns = sentences(language)
    for name in PAGES:
        response = browser.get(page(name), headers={"accept-language": language.replace("_", "-")})
        assert english(response, patterns) == [], name


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_page_without_redis_has_one(language: str, browser: Client, settings: Any) -> None:
    settings.DELAYQ = {"REDIS": "redis://127.0.0.1:1"}
    response = browser.get(page("overview"), headers={"accept-language": language.replace("_", "-")})
    assert response.status_code == 503
    assert english(response, sentences(language)) == []


@pytest.mark.parametrize("action", [each for each in BULK_ACTIONS.values() if each.in_menu], ids=lambda each: each.name)
def test_no_step_of_an_action_has_one(action: Any, browser: Client, jobs: dict[str, str], settings: Any) -> None:
    settings.LANGUAGE_CODE, patterns = "de", sentences("de")
    browser.defaults["HTTP_ACCEPT_LANGUAGE"] = "de"
    fields = {"reschedule": {"shift": "5", "unit": "60"}, "move": {"queue": "mail"}, "retry_later": {"minutes": "5"}}
    for name in action.job_lists:
        address = page("queue_detail", "mail") if name == "ready" else page(name)
        done = request_action(browser, address, action.name, jobs[name])
        # One job is retried, or run, without a question.
        if done.status_code != 302:
            assert english(done, patterns) == []
            assert english(confirm(browser, done, shift="1", moment="x", queue="", grace_s="-1"), patterns) == []
            done = confirm(browser, done, **fields.get(action.name, {}))
        assert english(browser.get(done.url), patterns) == []


def test_an_english_sentence_is_found(browser: Client, jobs: dict[str, str]) -> None:
    # The test of the tests above.
    assert english(browser.get(page("scheduled"), headers={"accept-language": "en"}), sentences("de"))


def test_no_press_that_is_undone_has_one(browser: Client, jobs: dict[str, str], settings: Any) -> None:
    settings.LANGUAGE_CODE, patterns = "de", sentences("de")
    browser.defaults["HTTP_ACCEPT_LANGUAGE"] = "de"
    presses: list[dict[str, str]] = [
        {"action": action, **fields}
        for actions, fields in (
            (("pause", "resume", "resume"), {"queue": "mail"}),
            (("pause_task", "resume_task"), {"task": "tests.sample_app.tasks.noop"}),
        )
        for action in actions
    ]
    for fields in presses:
        assert english(browser.get(page("action", **fields)), patterns) == []
        said = browser.get(browser.post(page("action"), fields).url)
        assert english(said, patterns) == [], fields
    for list_name in ("scheduled", "failed"):
        form = form_to(browser.get(page(list_name)), "/action/")
        token = next(value for name, value in form.boxes if name == "row")
        said = browser.get(form.post(browser, ("one", token)).url)
        assert english(said, patterns) == []
        for _ in range(2):
            done = browser.get(undo(browser, said).url)
            assert english(done, patterns) == []
