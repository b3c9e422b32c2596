"""The timeline of a job: its waits and runs, in their order, as a bar and as a table."""

from typing import Any

import pytest
from django.test import Client

from django_delayq.admin.charts.drawing import WIDTH
from django_delayq.admin.charts.timeline import Part, Timeline
from django_delayq.job.ids import to_text
from django_delayq.job.outcome import Action, Decision
from django_delayq.store.claims import Settlement
from tests.admin.conftest import page
from tests.admin.jobs import add, claim
from tests.admin.page_content import text
from tests.admin.reports import tell
from tests.shard_apis import DAY, HOUR, SECOND, ShardApis

MS = 1_000


def made_at(us: int) -> bytes:
    """Return an id of that moment."""
    return (us // MS).to_bytes(6) + b"random"


def kinds(browser: Client, text_id: str) -> list[tuple[str, int | None]]:
    """Return the kind and the attempt of each part of a job's timeline."""
    answer = browser.get(page("job_detail", text_id))
    context = answer.context_data
    found = context["detail"].timeline if "detail" in context else context["timeline"]
    shown = text(answer)
    assert all(part.name in shown for part in found.parts)
    for part, following in zip(found.parts, found.parts[1:], strict=False):
        assert part.begin_us <= (part.end_us or part.begin_us) <= following.begin_us
    return [(part.kind, part.attempt) for part in found.parts]


@pytest.mark.parametrize("lengths", [(1,), (0, 0), (10 * DAY, 1, SECOND), tuple(range(60)), (2**62, 2**62, 0)])
def test_parts_fill_the_bar_and_each_is_visible(lengths: tuple[int, ...]) -> None:
    boxes = Timeline([Part("ready", 0, each) for each in lengths]).boxes
    edges = [(box.x, box.x + box.width) for box in boxes]
    assert edges[0][0] == 0 and all(a[1] == b[0] for a, b in zip(edges, edges[1:], strict=False))
    assert all(box.width >= 8 for box in boxes)
    assert edges[-1][1] == (WIDTH if any(lengths) else 8 * len(lengths))


def test_a_job_waits_until_it_is_due_and_then_for_a_worker(browser: Client, stock: ShardApis) -> None:
    now_us = stock.clock.now_us
    scheduled = add(stock, raw_id=made_at(now_us - HOUR))
    assert kinds(browser, scheduled) == [("scheduled", None)]
    ready = add(stock, raw_id=made_at(now_us - HOUR), delay=None)
    assert kinds(browser, ready)[0][0] == "scheduled" and "Timeline" in text(browser.get(page("job_detail", ready)))


def test_attempts_stand_between_waits(browser: Client, stock: ShardApis) -> None:
    now_us = stock.clock.now_us
    mine = add(stock, raw_id=made_at(now_us - 20 * SECOND), delay=None)
    worker, claimed = claim(stock, mine)
    attempts = claimed.attempts
    for ago in (18, 9):
        began_us = now_us - ago * SECOND
        attempts = attempts.add(
            worker="w",
            started_us=began_us,
            ended_us=began_us + 2 * SECOND,
            due_us=began_us - SECOND,
            ending="failed",
            error="ValueError: x",
        )
    decision = Decision(action=Action.RETRY, delay_us=HOUR, crash_suspected=False)
    worker.take(0, settle=[Settlement(claim=claimed, decision=decision, attempts=attempts)])
    once = [("scheduled", None), ("ready", None)]
    assert kinds(browser, mine) == [*once, ("failed", 1), *once, ("failed", 2), ("scheduled", None)]
    shown = text(browser.get(page("job_detail", mine)))
    assert "Runs: 4.0 s." in shown


def test_a_running_job_runs_until_now(browser: Client, stock: ShardApis) -> None:
    mine = add(stock, raw_id=made_at(stock.clock.now_us - 20 * SECOND), delay=None)
    claim(stock, mine)
    assert kinds(browser, mine)[-1] == ("running", 1)


@pytest.mark.parametrize(("state", "kind"), [("done", "done"), ("cancelled", "cancelled"), ("dead", "failed")])
def test_a_job_that_is_gone_has_a_timeline(state: str, kind: str, browser: Client, stock: ShardApis) -> None:
    now_us = stock.clock.now_us
    raw_id = made_at(now_us - HOUR)
    tell(stock, endings=[(raw_id, "shop.t", "mail", 2, state, now_us - 9 * SECOND, SECOND, 5 * SECOND, 0, "")])
    assert kinds(browser, to_text(raw_id, 0)) == [("scheduled", None), ("ready", None), (kind, 3)]


def test_a_job_that_did_not_run_has_none(browser: Client, stock: ShardApis) -> None:
    raw_id = made_at(stock.clock.now_us - HOUR)
    tell(stock, endings=[(raw_id, "shop.t", "mail", 0, "expired", stock.clock.now_us, None, None, 0, "")])
    answer = browser.get(page("job_detail", to_text(raw_id, 0)))
    assert answer.status_code == 200 and answer.context_data["timeline"] is None
    assert "Timeline" not in text(answer)


@pytest.mark.parametrize(
    "times",
    [
        {"started_us": 1, "ended_us": None},
        {"started_us": 2**62, "ended_us": 1},
        {"started_us": 5, "ended_us": 2**62, "due_us": 2**61},
    ],
)
def test_any_times_are_drawn(times: dict[str, Any], browser: Client, stock: ShardApis) -> None:
    mine = add(stock, delay=None)
    worker, claimed = claim(stock, mine)
    attempts = claimed.attempts.add(worker="w", ending="crashed", error="", **times)
    decision = Decision(action=Action.DEAD_LETTER, delay_us=0, crash_suspected=False)
    worker.take(0, settle=[Settlement(claim=claimed, decision=decision, attempts=attempts)])
    assert browser.get(page("job_detail", mine)).status_code == 200
