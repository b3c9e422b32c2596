"""The admin while the number of shards changes: what is under way, what is left, and what to do."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from django_delayq.admin.page import admin_store
from django_delayq.management import resharding
from django_delayq.store.store import get_store
from tests.admin.conftest import page
from tests.admin.content.test_round_trips import trips
from tests.admin.page_content import rows, text
from tests.integration.growth.command import shards
from tests.sample_app.tasks import noop

HOUR = 3_600
TENANTS = [f"tenant {number}" for number in range(24)]


@pytest.fixture(autouse=True)
def _two_shards(delayq_settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": 2, "ON_COMMIT": False}
    monkeypatch.setattr(resharding, "LEARN_EVERY", 0.0)
    yield
    get_store().disconnect_idle()


def shown(browser: Client, name: str) -> str:
    """Return the text of a page with the present layout."""
    admin_store().layouts.read()
    return text(browser.get(page(name)))


def enqueue() -> list[Any]:
    """Enqueue a job of each tenant, due in an hour."""
    return [noop.using(delay=HOUR, tenant=tenant).enqueue() for tenant in TENANTS]


def test_growing_shows_what_is_left_and_what_to_do(browser: Client) -> None:
    handles = enqueue()
    assert "number of shards" not in shown(browser, "overview")
    left = shards("--grow", "5")["left"]
    change = "The number of shards changes from 2 to 5, and something may be left in the old places."
    for name in ("overview", "servers"):
        said = shown(browser, name)
        assert f"Note: {change} Run delayq_shards --finish until nothing is left." in said
        assert "SHARDS is 2, but there are 5 shards: set it to 5 with the next deploy." in said
    found = rows(browser, "servers")
    assert len(found) == 5
    numbers = {shard: sum(kinds.values()) for shard, kinds in left.items()}
    assert {shard: cells[-1] for shard, cells in found.items() if cells[-1] not in ("–", "nothing")} == {
        shard: f"{number} value{'s' if number > 1 else ''}" for shard, number in numbers.items()
    }
    assert [found[str(shard)][-1] for shard in (2, 3, 4)] == ["nothing"] * 3
    for handle in handles:
        assert handle.cancel()
    assert not shards("--finish")["left"]
    said = shown(browser, "servers")
    assert change not in said
    assert "Left of an older number" not in said
    assert f"Layout {get_store().layout.number}: new jobs are spread over 5 shards." in said


def test_a_job_that_was_retried_in_another_shard_is_found_by_its_old_id(browser: Client) -> None:
    *_, handle = enqueue()
    shards("--grow", "3")
    raw_id, shard = handle.id.split("-")
    answer = browser.get(page("job_detail", f"{raw_id}-{(int(shard) + 1) % 3}"))
    assert answer.status_code == 200
    assert f"Shard {shard} " in text(answer)


def test_before_the_first_count_nobody_knows_what_is_left(browser: Client) -> None:
    enqueue()
    store = get_store()
    assert store.layouts.store(store.layout.spread_over(3))
    said = shown(browser, "servers")
    assert "Recurring schedules are being moved, and none is declared meanwhile" in said
    assert [cells[-1] for cells in rows(browser, "servers").values()] == ["not counted yet"] * 3


def test_the_page_takes_two_round_trips_while_the_number_changes(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    enqueue()
    store = get_store()
    assert store.layouts.store(store.layout.spread_over(3))
    # All shards are on one server.
    assert trips(browser, page("servers"), monkeypatch) == 2


def test_announced_shards_get_no_jobs(browser: Client) -> None:
    enqueue()
    store = get_store()
    assert store.layouts.store(store.layout.announcing(3))
    command = "run delayq_shards --grow 3 again, or --shrink 2 to take that back."
    assert f"3 shards are announced, but only 2 get jobs: {command}" in shown(browser, "overview")
    assert [cells[1] for cells in rows(browser, "servers").values()] == ["active", "active", "announced"]


def test_shrinking_shows_what_drains(browser: Client) -> None:
    enqueue()
    store = get_store()
    assert store.layouts.store(store.layout.spread_over(1))
    assert "Shards 1 get no new jobs: run delayq_shards --shrink 1 until they are dropped." in shown(
        browser, "overview"
    )
    assert [(cells[1], cells[-1]) for cells in rows(browser, "servers").values()] == [
        ("active", "not counted yet"),
        ("draining", "all that is here"),
    ]


def test_a_shard_that_knows_another_layout_says_so(browser: Client) -> None:
    enqueue()
    store = get_store()
    before = store.layout
    assert store.layouts.store(before.spread_over(3))
    shard = store.producer_shard(1)
    shard.execute("SET", shard.keys("shards"), before.text)
    shown(browser, "servers")
    assert rows(browser, "servers")["1"][1] == f"active knows layout {before.number}"
