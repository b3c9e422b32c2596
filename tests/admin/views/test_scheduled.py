"""The lists of scheduled and ready jobs: rows, filters, and pages, also over shards."""

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.test import Client

from django_delayq.clock import ServerClock
from django_delayq.job.outcome import Action
from django_delayq.task import registry
from tests.admin.conftest import SITES, page
from tests.admin.forms import forms
from tests.admin.jobs import HOSTILE, HOUR, NOOP, POSTED, add, add_dead, claim, due_us
from tests.admin.page_content import ids, job_link, link, text, words
from tests.sample_app.tasks import catch_all, noop
from tests.shard_apis import ShardApis


def test_scheduled_jobs_are_listed_soonest_first(browser: Client, stock: ShardApis) -> None:
    late, soon = add(stock, 2, delay=2 * HOUR), add(stock, 1, queue="mail", delay=HOUR)
    answer = browser.get(page("scheduled"))
    assert ids(answer) == [soon, late]
    assert "<td class=call>1<" in answer.content.decode()
    assert "1/3" in text(answer)
    assert "Rows 1–2 of 2" in text(answer)
    assert ids(browser.get(page("scheduled", sort="reversed"))) == [late, soon]


def test_an_empty_list_says_what_to_do(browser: Client) -> None:
    with registry.override({}):
        assert "No task is registered: decorate a function" in text(browser.get(page("scheduled")))
    for task, call in ((noop, "noop.after(minutes=1).enqueue(…)"), (catch_all, "catch_all.after(minutes=1).enqueue()")):
        with registry.override({task.name: task}):
            assert f"Try {call} ." in text(browser.get(page("scheduled")))
    assert "Nothing here matches." in text(browser.get(page("scheduled", queue="none")))
    assert "This queue never had a job." in text(browser.get(page("queue_detail", "none")))


def test_every_row_is_on_exactly_one_page(browser: Client, stock: ShardApis) -> None:
    # Many jobs of one moment in three queues: ties keep their order too.
    made = [add(stock, number, queue=f"q{number % 3}", delay=HOUR) for number in range(55)]
    for text_id in made[:40]:
        stock.operations.reschedule(bytes.fromhex(text_id[:24]), due_us=due_us(stock, made[0]))
    for sort in ("", "reversed"):
        seen, address = [], page("scheduled", n=25, **({"sort": sort} if sort else {}))
        while address and len(seen) < 5:
            answer = browser.get(address)
            seen.append(ids(answer))
            address = link(answer, "After")
        assert [len(rows) for rows in seen] == [25, 25, 5]
        assert sorted(sum(seen, [])) == sorted(made)
        back = [seen[-1]]
        while len(back) < 5 and (address := link(answer, "Before")):
            answer = browser.get(address)
            back.insert(0, ids(answer))
        assert back == seen
        last = browser.get(link(answer, "Last"))
        assert ids(last) == sum(seen, [])[-25:]
        assert "Rows 31–55 of 55" in text(last)


def test_rows_that_vanish_shift_no_page(browser: Client, stock: ShardApis) -> None:
    made = [add(stock, number, delay=HOUR + number) for number in range(60)]
    first = browser.get(page("scheduled", n=25))
    for text_id in made[:25]:
        stock.operations.cancel(bytes.fromhex(text_id[:24]))
    assert ids(browser.get(link(first, "After"))) == made[25:50]


def test_shards_are_one_list(browser: Client, delayq_settings: Any, redis_url: str) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": 3}
    parts = [ShardApis(redis_url, clock=ServerClock(), shard=shard, SHARDS=3) for shard in range(3)]
    made = [add(parts[number % 3], number, delay=HOUR + number * 1_000) for number in range(60)]
    seen, address = [], page("scheduled", n=25)
    while address and len(seen) < 100:
        answer = browser.get(address)
        seen += ids(answer)
        address = link(answer, "After")
    assert len(seen) == 60
    assert set(seen) == set(made)
    assert "Rows 51–60 of 60" in text(answer)
    last = browser.get(page("scheduled", n=25, before="end"))
    assert ids(last) == seen[-25:]
    assert "Rows 36–60 of 60" in text(last)
    reversed_page = browser.get(link(browser.get(page("scheduled", n=25, sort="reversed")), "After"))
    assert ids(reversed_page) == seen[::-1][25:50]
    assert "Rows 26–50 of 60" in text(reversed_page)
    for part in parts:
        part.close()


def test_a_filter_by_queue_and_time_examines_no_other_row(browser: Client, stock: ShardApis) -> None:
    made = [add(stock, number, queue="mail", delay=number * HOUR) for number in range(1, 6)]
    add(stock, queue="other")
    answer = browser.get(
        page("scheduled", queue="mail", **{"from": due_us(stock, made[1]), "to": due_us(stock, made[3])})
    )
    assert ids(answer) == made[1:3]
    assert "Rows 1–2 of 2" in text(answer)
    assert ids(browser.get(page("scheduled", within="24h", queue="mail"))) == made
    assert ids(browser.get(page("scheduled", within="15m"))) == []


def test_a_jump_leads_to_a_moment(browser: Client, stock: ShardApis) -> None:
    made = [add(stock, number, delay=number * HOUR) for number in range(1, 6)]
    at = due_us(stock, made[2])
    assert ids(browser.get(page("scheduled", at=at))) == made[2:]
    assert ids(browser.get(page("scheduled", at=at, sort="reversed"))) == made[2::-1]


def test_a_scan_says_how_far_it_is_and_continues(
    browser: Client, stock: ShardApis, bounds: Callable[..., None]
) -> None:
    bounds(scanned_rows=60)
    made = [add(stock, "needle" if number in (3, 150) else "hay", delay=HOUR + number) for number in range(160)]
    answer = browser.get(page("scheduled", q="needle"))
    assert ids(answer) == [made[3]]
    assert "1 match. Searched 60 of 160, up to" in text(answer)
    assert "all that match, up to now" in text(answer)
    answer = browser.get(link(browser.get(link(answer, "Keep searching")), "Keep searching"))
    assert ids(answer) == [made[150]]
    assert not link(answer, "Keep searching")


def test_a_scan_ends_when_its_time_is_up(browser: Client, stock: ShardApis, bounds: Callable[..., None]) -> None:
    bounds(matching_seconds=0)
    mine = [add(stock, "needle", delay=HOUR + number) for number in range(2)]
    answer = browser.get(page("scheduled", q="needle"))
    assert ids(answer) == mine[:1]
    assert ids(browser.get(link(answer, "Keep searching"))) == mine[1:]


def test_a_scan_without_a_match_offers_a_button_to_continue(
    browser: Client, stock: ShardApis, bounds: Callable[..., None]
) -> None:
    bounds(scanned_rows=60)
    mine = [add(stock, "needle" if number == 65 else "hay", delay=HOUR + number) for number in range(130)][65]
    for forward in (True, False):
        answer = browser.get(page("scheduled", q="needle", **({} if forward else {"before": "end"})))
        assert "Nothing so far." in text(answer)
        assert re.search('<a class="delayq-button" href="[^"]*">Keep searching', answer.content.decode())
        assert ids(browser.get(link(answer, "Keep searching"))) == [mine]
    over = browser.get(page("scheduled", q="none", before=f"{due_us(stock, mine)}.00"))
    assert "Nothing so far." in text(over)
    over = browser.get(link(over, "Keep searching"))
    assert "Nothing here matches." in text(over)
    assert not link(over, "Keep searching")


@pytest.mark.parametrize("name", ["scheduled", "queue_detail", "running"])
def test_the_task_links_to_the_job(browser: Client, stock: ShardApis, name: str) -> None:
    mine = add(stock, delay=HOUR if name == "scheduled" else None)
    if name == "running":
        claim(stock, mine)
    answer = browser.get(page(name, *(["default"] if name == "queue_detail" else [])))
    assert link(answer, "noop") == job_link(answer, mine)
    assert "Attempt 1/3" in text(browser.get(job_link(answer, mine)))


def test_each_part_of_the_filter_is_a_chip_that_leads_to_the_list_without_it(browser: Client, stock: ShardApis) -> None:
    mine, other = add(stock, "needle", queue="mail"), add(stock, "needle")
    answer = browser.get(page("scheduled", queue="mail", q="needle", within="24h"))
    assert ids(answer) == [mine]
    chips = re.findall(r'<li><a href="([^"]*)" title="Remove">(.*?)</a>', answer.content.decode())
    assert [words(inner).removesuffix(" × Remove") for _url, inner in chips] == [
        "queue mail",
        "text needle",
        "due next 24 h",
    ]
    without_queue = browser.get(unescape(chips[0][0]))
    assert ids(without_queue) == [mine, other]
    assert "queue mail" not in text(without_queue)
    assert 'title="Remove"' not in browser.get(link(answer, "Clear")).content.decode()


def test_a_task_is_found_by_its_whole_name_or_its_end(browser: Client, stock: ShardApis) -> None:
    mine, _ = add(stock, task="shop.tasks.send"), add(stock, task="shop.tasks.resend")
    for name in ("shop.tasks.send", "tasks.send", "send"):
        assert ids(browser.get(page("scheduled", task=name))) == [mine]


def test_a_whole_id_leads_to_its_job(browser: Client, stock: ShardApis) -> None:
    mine = add(stock)
    answer = browser.get(page("scheduled", q=f" {mine} "))
    assert answer.status_code == 302
    assert answer.url == page("job_detail", mine)


def test_a_text_filter_does_not_find_hidden_values(visitor: Callable[..., Client], stock: ShardApis) -> None:
    mine = add(stock, "seen", token="hidden-value")
    for browser in (visitor("viewer"), visitor("superuser")):
        assert "hidden-value" not in browser.get(page("scheduled")).content.decode()
        assert "hidden-value" not in text(browser.get(page("scheduled", q="seen")))
        assert "0 matches. Searched 1 of 1" in text(browser.get(page("scheduled", q="hidden-val")))
    assert ids(browser.get(page("scheduled", q="SEEN"))) == [mine]


def test_a_job_that_waits_for_another_attempt_is_marked(browser: Client, stock: ShardApis) -> None:
    mine = add(stock, delay=None)
    worker, claimed = claim(stock, mine)
    worker.settle(claimed, Action.RETRY, delay=HOUR, error="ValueError: as asked")
    answer = browser.get(page("scheduled"))
    assert "2/3 retry" in text(answer)
    assert "ValueError: as asked" in answer.content.decode()


def test_a_page_keeps_its_filter_in_every_link_and_form(browser: Client, stock: ShardApis) -> None:
    for number in range(60):
        add(stock, number, queue="mail", delay=HOUR + number)
    answer = browser.get(page("scheduled", queue="mail", n=25, sort="reversed"))
    for name in ("First", "After", "Last", "CSV", "NDJSON"):
        assert "queue=mail" in link(answer, name)
        assert "n=25" in link(answer, name)
        assert "sort=reversed" in link(answer, name)
    assert all(
        dict(form.fields).get("queue") == "mail" or "queue=mail" in f"{form.action} {form.fields}"
        for form in forms(answer)[-3:]
    )


def test_ready_jobs_are_listed_in_the_order_of_claims(browser: Client, stock: ShardApis) -> None:
    first, second = add(stock, 1, delay=None), add(stock, 2, delay=None)
    add(stock, queue="mail", delay=None)
    answer = browser.get(page("queue_detail", "default"))
    assert ids(answer) == [first, second]
    assert "Cancel all…" in text(answer)


@pytest.mark.parametrize("name", ["a/b", "..", "ä?&#", "\x00", "x\ud800", "~", "<script>", "'\""])
def test_a_queue_of_any_name_has_its_page_and_links(browser: Client, stock: ShardApis, name: str) -> None:
    add(stock, queue=name)
    mine = add(stock, queue=name, delay=None)
    assert ids(browser.get(page("queue_detail", name))) == [mine]
    html = browser.get(page("scheduled")).content.decode()
    [term] = [unescape(each) for each in re.findall(r'<option value="(queue:[^"]*)">', html)]
    found = browser.get(page("search", find=term), follow=True)
    assert len(ids(found)) == 1
    assert 'title="Remove"' in found.content.decode()


def test_hostile_text_in_every_field_is_text(browser: Client, stock: ShardApis) -> None:
    add(stock, HOSTILE, task=f"shop.{HOSTILE}", queue=HOSTILE, **{HOSTILE: [HOSTILE]})
    add(stock, HOSTILE, "x" * 1_000_000, queue="big", **{HOSTILE: {HOSTILE: HOSTILE}})
    body = browser.get(page("scheduled")).content.decode()
    assert "<script>alert" not in body
    assert "&lt;script&gt;" in body
    assert "\x00" not in body
    assert "too long to be shown here" in body


_NAMES = ("queue", "task", "error", "error_group", "tenant", "q", "within", "from", "to", "at", "n", "order") + (
    "after",
    "before",
    "sort",
    "group",
    "open",
)


@pytest.mark.parametrize("list_name", ["scheduled", "running", "failed", "queue_detail"])
def test_no_query_breaks_a_list(browser: Client, stock: ShardApis, list_name: str) -> None:
    add(stock, delay=None)
    add(stock)
    add_dead(stock)
    args = ("default",) if list_name == "queue_detail" else ()
    for name in _NAMES:
        for value in (POSTED, "9" * 400, "-1", "9007199254740992", "end", "1.", "~ff", "0001-01-01"):
            answer = browser.get(page(list_name, *args), {name: value})
            assert answer.status_code in (200, 302)
    assert browser.get(page(list_name, *args), dict.fromkeys(_NAMES, "x" * 1_000_000)).status_code in (200, 302)


def test_an_unreadable_job_is_shown_with_the_reason(browser: Client, stock: ShardApis) -> None:
    mine = add(stock)
    stock.client.hset(stock.keys("jobs"), bytes.fromhex(mine[:24]), b"\x01\xff")
    stock.client.zadd(stock.keys.scheduled("default"), {b"short": 5, b"x" * 100: 1e300})
    answer = browser.get(page("scheduled"))
    assert "damaged" in text(answer)
    assert answer.status_code == 200


def test_only_people_who_may_manage_are_offered_actions(
    visitor: Callable[..., Client], stock: ShardApis, delayq_settings: Any
) -> None:
    add(stock)
    assert "Run now" in text(visitor("manager").get(page("scheduled")))
    viewer = visitor("viewer").get(page("scheduled")).content.decode()
    assert NOOP in viewer
    assert "Run now" not in viewer
    assert "name=row" not in viewer
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "ADMIN": {"READ_ONLY": True}}
    assert "Run now" not in visitor("superuser").get(page("scheduled")).content.decode()


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize(
    ("name", "args"),
    [("scheduled", ()), ("running", ()), ("failed", ()), ("queue_detail", ("default",)), ("job_detail", ("mine",))],
)
def test_only_people_who_may_view_see_a_list(
    visitor: Callable[..., Client], stock: ShardApis, site: str, name: str, args: tuple[str, ...]
) -> None:
    mine = add(stock)
    address = page(name, *(mine if each == "mine" else each for each in args), site=site)
    for kind, status in (("superuser", 200), ("manager", 200), ("viewer", 200), ("staff", 403), ("anonymous", 302)):
        answer = visitor(kind).get(address)
        assert answer.status_code == status
        if status == 200:
            assert f"/{'admin' if site == 'second' else 'second'}/django_delayq" not in answer.content.decode()
        else:
            assert mine not in answer.content.decode()
        assert visitor(kind).put(address).status_code == (405 if status == 200 else status)
