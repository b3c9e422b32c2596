"""Export: a list as NDJSON or CSV with the same values hidden as on the pages."""

import csv
import json
import re
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from tests.admin.conftest import SITES, page
from tests.admin.jobs import HOSTILE, HOUR, TRACEBACK, add, add_dead, claim
from tests.admin.page_content import link, text
from tests.shard_apis import ShardApis


def lines(answer: Any) -> list[dict[str, Any]]:
    """Return the objects of a download."""
    assert answer.status_code == 200
    return [json.loads(line) for line in b"".join(answer.streaming_content).decode().splitlines()]


def test_every_row_that_matches_is_sent(browser: Client, stock: ShardApis) -> None:
    made = [add(stock, number, queue="mail", delay=HOUR + number) for number in range(300)]
    add(stock, queue="other")
    answer = browser.get(page("export", "scheduled", queue="mail"))
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    assert "attachment" in answer.headers["Content-Disposition"]
    found = lines(answer)
    assert [each["id"] for each in found] == made
    assert found[5]["args"] == [5]
    assert found[5]["state"] == "scheduled"
    assert len(lines(browser.get(page("export", "scheduled", q="noop(29")))) == 11


def test_each_list_can_be_sent(browser: Client, stock: ShardApis) -> None:
    failed, ready, running = add_dead(stock, 1), add(stock, queue="r", delay=None), add(stock, queue="c", delay=None)
    claim(stock, running, queue="c")
    (one,) = lines(browser.get(page("export", "failed", error="Broken")))
    assert one["id"] == failed
    assert (one["error"], one["message"]) == ("shop.errors.Broken", "could not send")
    assert one["traceback"] == TRACEBACK
    assert "history" not in one
    (whole,) = lines(browser.get(page("export", "failed", history="all")))
    assert [each["error"] for each in whole["history"]] == [TRACEBACK]
    assert "traceback" not in whole
    assert [each["id"] for each in lines(browser.get(page("export", "running")))] == [running]
    assert [each["id"] for each in lines(browser.get(page("export", "ready", queue="r")))] == [ready]
    for list_name in ("ready", "none"):
        assert browser.get(page("export", list_name)).status_code == 404


def test_hidden_values_need_the_permission_and_are_recorded(visitor: Callable[..., Client], stock: ShardApis) -> None:
    add(stock, token="hidden-value")
    add(stock, "all", task="old.removed")
    address = page("export", "scheduled")
    for kind in ("viewer", "manager", "superuser"):
        assert [each["kwargs"] for each in lines(visitor(kind).get(address))] == [{"token": "•••"}, {}]
    assert not LogEntry.objects.exists()
    for kind in ("viewer", "manager"):
        assert visitor(kind).post(address).status_code == 403
    (one, other) = lines(visitor("viewer", "view_delayq_payload").post(address))
    assert one["kwargs"] == {"token": "hidden-value"}
    assert other["args"] == ["all"]
    assert LogEntry.objects.get().change_message.startswith("Exported with hidden values: scheduled")


def test_hostile_text_and_bytes_are_lines_too(browser: Client, stock: ShardApis) -> None:
    mine = add(stock, HOSTILE, queue=HOSTILE, task=HOSTILE)
    stock.client.hset(stock.keys("jobs"), bytes.fromhex(mine[:24]), b"\xff")
    add(stock, HOSTILE)
    damaged, whole = lines(browser.get(page("export", "scheduled")))
    assert damaged["args"] is None
    assert "damaged" in damaged["unreadable"]
    assert whole["args"] == [HOSTILE]


def test_a_download_that_redis_interrupts_says_that_it_is_incomplete(browser: Client, stock: ShardApis) -> None:
    for number in range(251):
        add(stock, number)
    answer = browser.get(page("export", "scheduled"))
    first = next(answer.streaming_content)
    # All rows of the first batch were read with the first one.
    stock.client.set(stock.keys.scheduled("default"), "not a sorted set")
    found = [*map(json.loads, first.splitlines()), *lines(answer)]
    assert len(found) == 251
    assert found[-1].keys() == {"incomplete"}
    assert found[-1]["incomplete"].startswith("Redis reported a fault at page.lua:")


def table(answer: Any) -> list[dict[str, str]]:
    """Return the rows of a download for a spreadsheet."""
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert re.search(r'filename="failed-\w+\.csv"', answer.headers["Content-Disposition"])
    content = b"".join(answer.streaming_content)
    assert content.startswith("\ufeff".encode())
    return list(csv.DictReader(StringIO(content.decode("utf-8-sig"), newline="")))


def test_a_list_is_a_table_too(browser: Client, stock: ShardApis) -> None:
    mine = [add_dead(stock, number, name='ö, "x"', token="hidden-value") for number in range(300)]
    found = table(browser.get(link(browser.get(page("failed")), "CSV")))
    assert [each["id"] for each in found] == mine[::-1] or [each["id"] for each in found] == mine
    one = next(each for each in found if each["id"] == mine[7])
    assert (one["args"], one["kwargs"]) == ("[7]", '{"name": "ö, \\"x\\"", "token": "•••"}')
    assert (one["state"], one["queue"], one["attempts"], one["error"]) == ("dead", "default", "1", "shop.errors.Broken")
    assert one["failed"] and not one["due"]
    assert "traceback" not in one and "history" not in one


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "＝1"])
def test_no_cell_is_a_formula(text: str, browser: Client, stock: ShardApis) -> None:
    add_dead(stock, queue=text, error=f"Traceback\nshop.Broken: {text}\n", exception=text)
    add_dead(stock, HOSTILE, task=HOSTILE, queue=HOSTILE)
    for one in table(browser.get(page("export", "failed", format="csv"))):
        for name, value in one.items():
            assert not value.startswith(tuple("=+-@\t\r\n＝")), name
            assert value.replace("\n", "").replace("\t", "").isprintable()


@pytest.mark.parametrize("site", SITES)
def test_only_people_who_may_view_may_download(visitor: Callable[..., Client], site: str) -> None:
    for kind, status in (("superuser", 200), ("manager", 200), ("viewer", 200), ("staff", 403), ("anonymous", 302)):
        for list_name in ("scheduled", "running", "failed"):
            answer = visitor(kind).get(page("export", list_name, site=site))
            assert answer.status_code == status
            if status == 200:
                assert lines(answer) == []


def test_only_people_who_may_reveal_are_offered_hidden_values(visitor: Callable[..., Client], stock: ShardApis) -> None:
    add(stock, token="hidden-value")
    offer = "Export with hidden values"
    assert offer not in text(visitor("viewer").get(page("scheduled")))
    shown = visitor("viewer", "view_delayq_payload").get(page("scheduled"))
    assert offer in text(shown)
    assert f'<form method="post" action="{page("export", "scheduled")}"' in shown.content.decode()
