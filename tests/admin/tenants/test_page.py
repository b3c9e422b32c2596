"""The page of the tenants of one queue, the links to it, and the tenant on the page of a job."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from django.test import Client

from django_delayq import runtime
from django_delayq.admin.lists.filters import url_name
from django_delayq.admin.views.queues import tenants
from django_delayq.display.text import printable
from django_delayq.job.ids import to_text
from django_delayq.store.digests import queue_hash, tenant_digest
from django_delayq.testing.fake_clock import FakeClock
from tests.admin.conftest import page
from tests.admin.content.test_round_trips import trips
from tests.admin.forms import forms
from tests.admin.jobs import HOSTILE
from tests.admin.page_content import link, rows, text
from tests.admin.tenants.conftest import QUEUES
from tests.shard_apis import HOUR, MS, SECOND, ShardApis


def pressable(response: Any) -> list[str]:
    """Return the buttons of the tenants."""
    return [value for form in forms(response) for _, value in form.buttons if value.endswith("_tenant")]


def test_tenants_with_the_most_waiting_jobs_come_first(browser: Client, stock: ShardApis) -> None:
    for name, number in (("one", 1), ("acme", 3), ("two", 2)):
        for _ in range(number):
            stock.add(queue="mail", tenant=name)
    stock.add(queue="mail", tenant="two", delay=HOUR)
    stock.add(queue="mail", tenant="two", delay=HOUR)
    stock.add(queue="default", tenant="of another queue")
    found = rows(browser, "queue_tenants", "mail")
    assert list(found) == ["two", "acme", "one"]
    assert [cells[:2] for cells in found.values()] == [["4", "50.0%"], ["3", "37.5%"], ["1", "12.5%"]]
    assert [cells[3] for cells in found.values()] == ["1", "3", "1"]


def test_the_page_shows_since_when_the_next_job_has_been_due(browser: Client, stock: ShardApis, redis_url: str) -> None:
    # A job's due time is kept to the millisecond.
    now_us = stock.clock.now_us // MS * MS
    with closing(ShardApis(redis_url, clock=FakeClock(now_us - 90 * SECOND), QUEUES=QUEUES)) as past:
        past.add(queue="mail", tenant="late")
    stock.add(queue="mail", tenant="late")
    stock.add(queue="mail", tenant="later", delay=HOUR)
    with runtime.override(clock=FakeClock(now_us)):
        found = rows(browser, "queue_tenants", "mail")
    assert found["late"][2].startswith("90 s ago")
    assert found["later"][2] == "–"


def test_jobs_without_a_tenant_are_one_row_that_cannot_be_paused(browser: Client, stock: ShardApis) -> None:
    for _ in range(2):
        stock.add(queue="mail")
    assert rows(browser, "queue_tenants", "mail")["No tenant"][:2] == ["2", "100%"]
    assert pressable(browser.get(page("queue_tenants", "mail"))) == []


def test_a_tenant_whose_job_cannot_be_read_cannot_be_paused(browser: Client, stock: ShardApis) -> None:
    raw_id = stock.add(queue="mail", tenant="acme")
    stock.client.hset(stock.keys("jobs"), raw_id, b"\xff")
    [(name, cells)] = rows(browser, "queue_tenants", "mail").items()
    assert name == f"Name unknown ({tenant_digest('acme').hex()})"
    assert (cells[0], cells[3]) == ("1", "–")
    assert pressable(browser.get(page("queue_tenants", "mail"))) == []


def test_a_name_that_is_not_that_of_the_counted_jobs_is_not_shown(browser: Client, stock: ShardApis) -> None:
    raw_id, other = stock.add(queue="mail", tenant="acme"), stock.add(queue="default", tenant="other")
    body = stock.client.hget(stock.keys("jobs"), other)
    stock.client.hset(stock.keys("jobs"), raw_id, body)
    [name] = rows(browser, "queue_tenants", "mail")
    assert name.startswith("Name unknown")


def test_a_queue_that_is_not_fair_has_neither_weights_nor_buttons(browser: Client, stock: ShardApis) -> None:
    stock.add(queue="small", tenant="acme")
    stock.add(queue="small")
    response = browser.get(page("queue_tenants", "small"))
    assert rows(browser, "queue_tenants", "small").keys() == {"acme"}
    assert rows(browser, "queue_tenants", "small")["acme"][:2] == ["1", "50.0%"]
    assert pressable(response) == ["cancel_tenant"]
    said = text(response)
    assert "Weight" not in said and "This queue is not fair" in said
    assert "At most 2,000 jobs of each tenant may wait." in said


@pytest.mark.parametrize("queue", ["mail", "small", "default", "unknown", HOSTILE])
def test_a_queue_without_tenants_says_so(queue: str, browser: Client, stock: ShardApis) -> None:
    response = browser.get(page("queue_tenants", queue))
    assert response.status_code == 200
    assert f"No tenant has waiting jobs{' or is paused' if queue == 'mail' else ''}." in text(response)
    assert "<script>alert" not in response.content.decode()


def test_an_address_that_is_no_queue_is_not_found(browser: Client) -> None:
    assert browser.get(page("queue_tenants", "x").replace("/x/", "/~zz/")).status_code == 404


@pytest.mark.parametrize(("queue", "linked"), [("mail", True), ("small", True), ("default", False), ("unknown", False)])
def test_the_page_of_a_queue_with_tenants_links_to_them(
    queue: str, linked: bool, browser: Client, stock: ShardApis
) -> None:
    response = browser.get(page("queue_detail", queue))
    assert link(response, "Tenants") == (page("queue_tenants", queue) if linked else "")
    assert link(browser.get(page("queue_tenants", queue)), f"Queue {queue}") == page("queue_detail", queue)


def test_the_hundred_largest_tenants_are_shown(browser: Client, stock: ShardApis) -> None:
    for number in range(102):
        stock.add(queue="mail", tenant=f"t{number:03}")
    for _ in range(2):
        stock.add(queue="mail", tenant="t101")
    found = list(rows(browser, "queue_tenants", "mail"))
    assert found == ["t101", *(f"t{number:03}" for number in range(99))]
    stock.operations.workers.pause_tenant("mail", "t100", by="ann")
    stock.operations.workers.pause_tenant("mail", "without jobs", by="ann")
    assert list(rows(browser, "queue_tenants", "mail")) == [*found, "t100", "without jobs"]
    said = text(browser.get(page("queue_tenants", "mail")))
    assert "102 of 103 tenants: those with the most waiting jobs, then paused ones." in said


def test_paused_tenants_without_jobs_are_listed(browser: Client, stock: ShardApis) -> None:
    stock.add(queue="mail", tenant="acme")
    stock.operations.workers.pause_tenant("mail", HOSTILE, by="ann")
    stock.operations.workers.pause_tenant("more", "of another queue", by="ann")
    found = rows(browser, "queue_tenants", "mail")
    assert list(found) == ["acme", printable(HOSTILE)]
    assert found[printable(HOSTILE)][:2] == ["0", "0%"]
    assert found[printable(HOSTILE)][4].startswith("paused by ann")
    assert pressable(browser.get(page("queue_tenants", "mail"))) == ["pause_tenant", "cancel_tenant", "resume_tenant"]


def test_the_page_of_a_fair_queue_takes_three_round_trips(
    browser: Client, stock: ShardApis, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock.add(queue="mail", tenant="acme")
    stock.operations.workers.pause_tenant("mail", "without jobs", by="ann")
    assert trips(browser, page("queue_tenants", "mail"), monkeypatch) == 3


def test_a_pause_of_an_earlier_release_has_no_name(browser: Client, stock: ShardApis) -> None:
    field = queue_hash("mail") + tenant_digest("acme")
    stock.client.hset(stock.keys("tenants"), field, b"1700000000000000 ann")
    [(name, cells)] = rows(browser, "queue_tenants", "mail").items()
    assert name.startswith("Name unknown") and cells[4].startswith("paused by ann")
    assert pressable(browser.get(page("queue_tenants", "mail"))) == []
    stock.add(queue="mail", tenant="acme")
    assert list(rows(browser, "queue_tenants", "mail")) == ["acme"]
    assert pressable(browser.get(page("queue_tenants", "mail"))) == ["resume_tenant", "cancel_tenant"]


def test_paused_tenants_are_not_listed_if_the_queue_is_fair_no_more(
    browser: Client, stock: ShardApis, delayq_settings: Any
) -> None:
    stock.operations.workers.pause_tenant("mail", "acme", by="ann")
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "QUEUES": {"mail": {}}}
    assert "acme" not in text(browser.get(page("queue_tenants", "mail")))


def test_paused_tenants_are_listed_with_their_jobs_if_the_page_did_not_read_all(
    browser: Client, shards: list[ShardApis], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenants, "_READ", 2)
    monkeypatch.setattr(tenants, "_SHOWN", 2)
    names = sorted((f"t{number}" for number in range(5)), key=tenant_digest)
    for name in names:
        for apis in shards:
            apis.add(queue="mail", tenant=name)
    for number in range(3):
        shards[0].store.operations(number).workers.pause_tenant("mail", names[4], by="ann")
    found = rows(browser, "queue_tenants", "mail")
    assert list(found) == [*sorted(names[:2]), names[4]]
    assert found[names[4]][0] == "3"


@pytest.mark.parametrize("reads", [0, 1])
def test_the_page_says_if_it_did_not_read_all_pauses(
    reads: int, browser: Client, stock: ShardApis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenants, "_PAUSE_READS", reads)
    stock.operations.workers.pause_tenant("mail", "acme", by="ann")
    said = text(browser.get(page("queue_tenants", "mail")))
    assert ("acme" in said) is bool(reads)
    assert ("Not all tenants were read." in said) is (not reads)


@pytest.mark.parametrize("most", [4, 5])
def test_the_page_says_if_it_did_not_read_all(
    most: int, browser: Client, stock: ShardApis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenants, "_READ", most)
    for number in range(5):
        stock.add(queue="mail", tenant=f"t{number}")
    said = text(browser.get(page("queue_tenants", "mail")))
    assert len(rows(browser, "queue_tenants", "mail")) == most
    assert ("Not all tenants were read. The page reads up to 4 tenants of a shard" in said) is (most == 4)


def test_the_same_tenant_of_several_shards_is_one_row(browser: Client, shards: list[ShardApis]) -> None:
    for number, apis in enumerate(shards):
        for _ in range(number + 1):
            apis.add(queue="mail")
        apis.add(queue="mail", tenant=f"of {number}")
    # As after a change of SHARDS.
    shards[0].add(queue="mail", tenant="of 2", delay=HOUR)
    shards[0].store.operations(2).workers.pause_tenant("mail", "of 2", by="ann")
    found = rows(browser, "queue_tenants", "mail")
    assert {name: cells[0] for name, cells in found.items()} == {
        "No tenant": "6",
        "of 0": "1",
        "of 1": "1",
        "of 2": "2",
    }
    assert found["of 2"][2].startswith("now")
    assert found["of 2"][4].startswith("paused by ann")


@pytest.mark.parametrize(
    ("kind", "read_only", "buttons"),
    [("superuser", False, 2), ("manager", False, 2), ("viewer", False, 0), ("superuser", True, 0)],
)
def test_who_may_not_manage_sees_no_buttons(
    kind: str, read_only: bool, buttons: int, visitor: Callable[..., Client], stock: ShardApis, settings: Any
) -> None:
    stock.add(queue="mail", tenant="acme")
    stock.add(queue="mail", tenant="other")
    stock.store.operations(0).workers.pause_tenant("mail", "other", by="ann")
    settings.DELAYQ = {**settings.DELAYQ, "ADMIN": {"READ_ONLY": read_only}}
    response = visitor(kind).get(page("queue_tenants", "mail"))
    assert "paused by ann" in text(response)
    assert pressable(response) == (
        ["pause_tenant", "cancel_tenant", "resume_tenant", "cancel_tenant"] if buttons else []
    )


def test_the_page_of_a_job_shows_its_tenant(browser: Client, stock: ShardApis) -> None:
    named, without = stock.add(queue="mail", tenant=HOSTILE), stock.add(queue="mail")
    response = browser.get(page("job_detail", to_text(named, 0)))
    assert "Tenant &lt;script&gt;alert(1)&lt;/script&gt;" in text(response)
    assert r"\x00\x1b[31m \u202e \ud800" in text(response)
    assert "Tenant" not in text(browser.get(page("job_detail", to_text(without, 0))))


def test_the_field_of_a_form_names_the_tenant(browser: Client, stock: ShardApis) -> None:
    stock.add(queue="mail", tenant="a\x00b")
    [form] = [form for form in forms(browser.get(page("queue_tenants", "mail"))) if form.offers("pause_tenant")]
    assert dict(form.fields)["tenant"] == url_name("a\x00b") == "~610062"
