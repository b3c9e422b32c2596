"""No page has an unprintable character, whatever its source; ordinary writing stays unchanged."""

import re
from typing import Any
from unicodedata import category

import pytest
from django.contrib.auth.models import User
from django.test import Client

from django_delayq.display.text import printable
from tests.admin.conftest import page
from tests.admin.forms import form_to
from tests.admin.jobs import add, add_dead, claim
from tests.admin.page_content import PAGES
from tests.admin.reports import tell
from tests.admin.schedule_records import add_schedule
from tests.admin.steps import confirm, request_action, result
from tests.shard_apis import ShardApis

#: NUL, ESC, C1, DEL, CR, a BOM, a zero-width space, direction marks, a line separator, a lone surrogate.
RAW = "a\x00b\x1b[31mc\x9bd\x7fe\rf\ufeffg\u200bh\u202ei\u2066j\u2028k\u200dl\ud800m"
#: The same as far as bytes can hold it.
SENT = RAW.replace("\ud800", "")
#: The same without characters that belong to words or that a browser takes for a line break.
TYPED = SENT.replace("\u200d", "").replace("\r", "")
#: Persian with a joiner within a word, also after a Latin one, a Japanese space, French ones, a family.
WRITTEN = (
    "می\u200cخواهم",
    "email\u200cها",
    "日本\u3000語",
    "«\u00a0oui\u202f»",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
)


def raw_characters(content: str) -> list[str]:
    """Return the unprintable characters of a page other than line breaks."""
    odd = [at for at, c in enumerate(content) if category(c)[0] == "C" or category(c) in ("Zl", "Zp")]
    return [repr(content[at - 60 : at + 1]) for at in odd if content[at] not in "\n\t"]


def look(answer: Any, *, status: int = 200) -> str:
    """Return a page's content, which has no such character."""
    assert answer.status_code == status
    content: str = answer.content.decode()
    assert raw_characters(content) == []
    return content


@pytest.fixture
def raw_store(stock: ShardApis) -> dict[str, str]:
    """Put the text into every field that can hold it; return the ids by list."""
    text: dict[str, Any] = {"task": RAW, "queue": RAW}
    error = f'Traceback\n  File "{RAW}", line 1\nshop.Broken: {RAW}\n'
    ids = {"running": add(stock, RAW, delay=None, **text)}
    claim(stock, ids["running"], queue=RAW)[0].take(0, RAW, description=SENT)
    ids["failed"] = add_dead(stock, {RAW: RAW}, error=error, unique_by=RAW, **{RAW: RAW}, **text)
    ids["odd end"] = add_dead(stock, RAW, error=RAW, ending=RAW)
    ids["ready"] = add(stock, [RAW], delay=None, **text)
    ids["scheduled"] = add(stock, RAW, unique_by=f"{RAW} too", **{RAW: RAW}, **text)
    ids["known"] = add(stock, RAW, unique_by=f"{RAW} again", **{RAW: RAW})
    for kind in ("dispatcher", "worker"):
        said = {"name": RAW, "version": RAW, "queues": [RAW], "slots": 1, "running": {RAW: 1}}
        ended = (bytes(12), RAW, RAW, 1, "done", stock.clock.now_us, 1, 1, 1, RAW)
        tell(stock, kind=kind, code=kind.encode()[:8], queue=RAW, task=RAW, done=1, dead=1, endings=[ended], **said)
    ids["gone"] = f"{'0' * 24}-0"
    stock.operations.pause(RAW, by=RAW)
    stock.operations.limits.pause_task(RAW, by=RAW)
    ids["schedule"] = add_schedule(stock, RAW, args=[RAW], kwargs={RAW: RAW}, **text)
    return ids


@pytest.mark.parametrize("name", PAGES)
def test_no_list_shows_a_raw_character(name: str, browser: Client, raw_store: dict[str, str]) -> None:
    content = look(browser.get(page(name)))
    if name not in ("overview", "queues", "servers"):
        assert r"\x1b[31m" in content
    if name in ("scheduled", "running", "finished", "failed"):
        look(browser.get(page(name, q=TYPED, queue=TYPED, task=TYPED, error=TYPED, **{"from": TYPED})))
    if name == "failed":
        for group in ("error", "task"):
            look(browser.get(page("failed", group=group)))


def test_no_page_of_a_job_schedule_or_queue_shows_a_raw_character(browser: Client, raw_store: dict[str, str]) -> None:
    for name, text_id in raw_store.items():
        address = page("recurring_schedule" if name == "schedule" else "job_detail", text_id)
        look(browser.get(address))
        look(browser.post(address))
    look(browser.get(page("recurring_calendar")))
    content = look(browser.get(page("queue_detail", RAW)))
    assert "paused by a\\x00b\\x1b[31mc" in content
    content = look(browser.get(page("job_detail", raw_store["running"])))
    assert re.search(r"</time>, a\\x00b\\x1b\[31mc", content), "who runs it"


def test_no_confirm_page_and_no_message_shows_a_raw_character(browser: Client, raw_store: dict[str, str]) -> None:
    for list_name, action in (("scheduled", "move"), ("failed", "retry_later"), ("failed", "delete")):
        asked = request_action(
            browser, page(list_name, task=f"~{RAW.encode('utf-8', 'surrogatepass').hex()}"), action, all="yes"
        )
        look(asked)
    look(browser.get(confirm(browser, asked).url))
    look(browser.get(page("job_detail", raw_store["failed"])), status=404)
    schedule = form_to(browser.get(page("recurring")), "/action/")
    asked = schedule.post(browser, action="pause_schedule")
    look(asked)
    look(browser.get(confirm(browser, asked).url))
    queue = form_to(browser.get(page("queue_detail", RAW)), "/action/", button="resume")
    look(browser.get(page("action", **{**dict(queue.fields), "action": "resume"})))
    look(browser.get(queue.post(browser, action="resume").url))


def test_the_name_of_an_account_is_escaped_too(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock)
    User.objects.filter(username="superuser").update(username=TYPED)
    result(browser, confirm(browser, request_action(browser, page("failed"), "delete", mine)))
    look(browser.get(page("job_detail", mine)), status=404)


@pytest.mark.parametrize("text", WRITTEN)
def test_ordinary_writing_is_shown_and_found_unchanged(text: str, browser: Client, stock: ShardApis) -> None:
    mine = add(stock, f"x {text} y", title=text)
    add(stock, "other")
    content = browser.get(page("scheduled", q=text)).content.decode()
    assert content.count(text) >= 2
    assert mine in content
    assert "1 match. Searched 2 of 2" in content
    assert text in browser.get(page("job_detail", mine)).content.decode()
    assert printable(text) == text


@pytest.mark.parametrize(
    "text",
    ["default\u200d", "de\u200dfault", "\u200c", "\u00a0x", "x\u3000", "a\u3000\u3000b", "ا\u200c\u200cب", "\u202e"],
)
def test_invisible_characters_are_escaped(text: str) -> None:
    assert printable(text).isascii() or r"\u200c" in printable(text)
    assert printable(text) != text
