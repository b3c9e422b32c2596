"""Finished: the last endings, as reports store them and as they are read."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from django_delayq.dispatcher.dispatcher import Dispatcher
from django_delayq.job.ending import EndingBuffer, EndingRow
from django_delayq.job.outcome import Action, Outcome, OutcomeKind
from django_delayq.metrics import MetricsBuffer
from django_delayq.processes.emitter import emit_now
from django_delayq.store.process_reports import ProcessReports
from django_delayq.worker.settlement import decide_settlement, emit_all
from tests.shard_apis import HOUR, SECOND, ShardApis

KEPT = 50


@pytest.fixture
def few(client: Redis, redis_url: str) -> Iterator[ShardApis]:
    """The APIs of a shard that keeps few endings."""
    apis = ShardApis(redis_url, FINISHED_KEPT=KEPT)
    yield apis
    apis.close()


def end(number: int, *, task: str = "shop.remind") -> EndingRow:
    """Return one ending; a larger number is later."""
    return number.to_bytes(12), task, "mail", number - 1, "done", number * SECOND, 5, 7, 0, ""


def report(apis: ShardApis, *numbers: int, **options: Any) -> None:
    """Report endings, as one worker does."""
    rows = [end(number, **options) for number in numbers]
    ProcessReports(apis.shard).report(os.urandom(8), "worker", {"name": "host:1"}, {}, rows)


def attempts(apis: ShardApis) -> list[int]:
    """Return the numbers of the endings that are kept, newest first."""
    return [each.attempt for each in apis.store.endings()]


def stored(apis: ShardApis) -> list[bytes]:
    """Return the chunks."""
    found: list[bytes] = apis.client.lrange(apis.keys("finished"), 0, -1)
    return found


def test_endings_of_several_processes_are_read_newest_first(few: ShardApis) -> None:
    report(few, 1, 4)
    report(few, 2, 3)
    report(few)
    assert attempts(few) == [4, 3, 2, 1]
    assert len(stored(few)) == 2


def test_a_report_that_is_repeated_counts_once(few: ShardApis) -> None:
    for _ in range(2):
        report(few, 1, 2)
    assert attempts(few) == [2, 1]


@pytest.mark.parametrize("size", [1, 7, KEPT, 3 * KEPT])
def test_the_newest_are_kept_however_many_a_report_has(size: int, few: ShardApis) -> None:
    for number in range(1, 4 * KEPT, size):
        report(few, *range(number, number + size))
    last = number + size - 1
    assert attempts(few) == [*range(last, last - KEPT, -1)]
    assert len(stored(few)) <= -(-KEPT // size) + 1


def test_their_bytes_are_bounded(few: ShardApis) -> None:
    for number in range(100):
        report(few, number, task=os.urandom(600).hex())
        assert sum(map(len, stored(few))) <= 200 * KEPT
    assert attempts(few)[0] == 99 and len(attempts(few)) > 4
    report(few, *range(100, 200), task="x" * 100_000)
    assert sum(map(len, stored(few))) <= 2 * 200 * KEPT


def test_a_damaged_chunk_hides_no_other_and_goes_with_time(few: ShardApis) -> None:
    report(few, 1)
    few.client.rpush(few.keys("finished"), b"written by hand", b"9 9 " + bytes(70), b"")
    report(few, 2)
    assert attempts(few)[0] == 2
    last = KEPT + 20
    for number in range(3, last + 1):
        report(few, number)
    assert attempts(few) == [*range(last, last - KEPT, -1)]
    assert len(stored(few)) == KEPT


def test_a_setting_of_0_removes_what_is_there(few: ShardApis, redis_url: str) -> None:
    report(few, 1)
    off = ShardApis(redis_url, FINISHED_KEPT=0)
    try:
        report(off, 2)
        assert not stored(off) and off.store.endings() == []
    finally:
        off.close()


def test_the_shards_share_the_number(client: Redis, redis_url: str) -> None:
    shards = [ShardApis(redis_url, shard=number, SHARDS=2, FINISHED_KEPT=KEPT) for number in range(2)]
    try:
        for number in range(4 * KEPT):
            report(shards[number % 2], number)
        assert [len(stored(each)) for each in shards] == [KEPT // 2] * 2
        assert attempts(shards[0]) == [*range(4 * KEPT - 1, 3 * KEPT - 1, -1)]
        assert {each.shard for each in shards[0].store.endings()} == {0, 1}
    finally:
        for each in shards:
            each.close()


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        (OutcomeKind.SUCCEEDED, "done"),
        (OutcomeKind.REJECTED, "dead"),
        (OutcomeKind.STOPPED, "cancelled"),
        (OutcomeKind.EXPIRED, "expired"),
        (OutcomeKind.DROPPED, "dropped"),
        (OutcomeKind.FAILED, None),
        (OutcomeKind.SNOOZED, None),
        (OutcomeKind.UNSTARTED, None),
    ],
)
def test_a_worker_notes_the_jobs_that_ended(kind: OutcomeKind, state: str | None, few: ShardApis) -> None:
    raw_id = few.add(queue="mail")
    [claim] = few.worker().take(1, "mail").claims
    ran = kind not in (OutcomeKind.EXPIRED, OutcomeKind.DROPPED)
    outcome = Outcome(kind=kind, run_us=3_000, began=claim.received_at if ran else None)
    settlement, endings = decide_settlement(claim, outcome, worker="w"), EndingBuffer(KEPT)
    emit_all([(settlement, outcome)], lost=frozenset(), metrics=MetricsBuffer(), endings=endings, emit=emit_now)
    ProcessReports(few.shard).deregister(os.urandom(8), {}, endings.take(), name="host:7")
    found = few.store.endings()
    assert [each.state for each in found] == ([state] if state else [])
    for each in found:
        assert (each.raw_id, each.queue, each.attempt, each.worker) == (raw_id, "mail", 1, "host:7")
        assert (each.run_us, each.lag_us) == ((3_000, claim.claimed_us - claim.due_us) if ran else (None, None))
        assert each.started_us == (claim.claimed_us if ran else None)


def test_an_ending_says_whether_its_result_is_kept(few: ShardApis) -> None:
    for ttl in (None, HOUR):
        few.add(queue="mail", ttl=ttl)
    endings = EndingBuffer(KEPT)
    for claim in few.worker().take(2, "mail").claims:
        ttl = claim.job.result_ttl_us if claim.job else None
        outcome = Outcome(kind=OutcomeKind.SUCCEEDED, result="3" if ttl else None, began=claim.received_at)
        settled = [(decide_settlement(claim, outcome, worker="w"), outcome)]
        emit_all(settled, lost=frozenset(), metrics=MetricsBuffer(), endings=endings, emit=emit_now)
    assert sorted(each[8] for each in endings.take()) == [0, HOUR // 1_000]


def test_a_dispatcher_notes_the_dead_letters_that_it_made(few: ShardApis) -> None:
    raw_id, worker = few.add(queue="mail"), few.worker()
    for _ in range(4):
        [claim] = worker.take(1, "mail", description="host:5").claims
        worker.settle(claim, Action.RETRY)
        few.promote()
    assert len(worker.take(1, "mail").claims) == 1
    dispatcher = Dispatcher(few.shard, few.promotion, emit=emit_now)
    # It takes the jump of the clock for an outage first.
    for length_us in (few.config.worker.lease_us, few.config.dispatcher.recovery_us):
        few.clock.advance(length_us)
        dispatcher.promote()
    [row] = dispatcher.endings.take()
    assert row[0].startswith(raw_id)
    assert row[1:5] == ("tests.sample_app.tasks.noop", "mail", 4, "dead")
    assert row[6:] == (None, None, 0, "host:5")
