"""Arrivals: what moves to another shard comes once, whoever is slow, and a handle finds it there."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_delayq.clock import SECOND_US, ServerClock
from django_delayq.job.ids import from_text, shard_of
from django_delayq.job.job import State
from django_delayq.store.digests import key_digest
from django_delayq.store.growth.schedule_moves import ScheduleMoves
from django_delayq.store.operations.batch import BatchJob, Effect
from django_delayq.store.operations.revival import Revival
from django_delayq.store.store import get_store
from django_delayq.task.recurring.handle import ScheduleHandle
from tests.integration.growth.several import HOUR, Process
from tests.sample_app.tasks import noop
from tests.shard_apis import ShardApis

NAMES = [f"schedule {number}" for number in range(12)]


@pytest.fixture(autouse=True)
def _one_shard(delayq_settings: Any) -> Iterator[None]:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": 1, "ON_COMMIT": False}
    yield
    get_store().disconnect_idle()


def before_the_first(monkeypatch: pytest.MonkeyPatch, api: type, method: str, call: Callable[[], object]) -> None:
    """Let a call be made right before the first call of a method, which is slow."""
    real, calls = getattr(api, method), [call]

    def slow(self: Any, *args: Any, **options: Any) -> Any:
        if calls:
            calls.pop()()
        return real(self, *args, **options)

    monkeypatch.setattr(api, method, slow)


def dead_letter_of_another_shard(redis: Any) -> BatchJob:
    """Return a dead letter whose key belongs to the second of two shards by now."""
    key = next(key for key in map(str, range(100)) if shard_of(key_digest(noop.name, key, None), 2) == 1)
    found = from_text(noop.using(key=key).enqueue().id)
    assert found is not None
    apis = ShardApis(redis, clock=ServerClock())
    try:
        apis.kill(found[0])
        letter = apis.inspection.dead_letter(found[0])
    finally:
        apis.close()
    assert letter is not None
    process = Process()
    process.spread_over(2)
    process.count()
    get_store().layouts.read()
    return BatchJob(raw_id=letter.raw_id, died_us=letter.moment_us, delay_us=HOUR * SECOND_US)


@pytest.mark.parametrize("ends", [False, True])
def test_a_dead_letter_that_two_people_retry_comes_once(
    ends: bool, delayq_settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = dead_letter_of_another_shard(delayq_settings.DELAYQ["REDIS"])
    store, effects = get_store(), list[Effect]()

    def retry() -> None:
        effects.extend(store.operations(0).dead_letters.requeue([job]))

    def other() -> None:
        retry()
        if ends:
            [gone] = store.operations(1).waiting_jobs.cancel([BatchJob(raw_id=job.raw_id)])
            assert gone.done

    before_the_first(monkeypatch, Revival, "revive", other)
    retry()
    assert effects[0].done and effects[0].shard == 1
    assert not effects[1].done
    assert store.find(job.raw_id, 0).state is (State.GONE if ends else State.SCHEDULED)


def test_a_retry_that_was_killed_in_the_middle_leaves_nothing(
    delayq_settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = dead_letter_of_another_shard(delayq_settings.DELAYQ["REDIS"])
    letters = get_store().operations(0).dead_letters

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(letters), "discard", killed)
        with pytest.raises(KeyboardInterrupt):
            letters.requeue([job])
    assert get_store().operations(1).waiting_jobs.cancel([BatchJob(raw_id=job.raw_id)])[0].done
    assert not letters.requeue([job])[0].done
    assert get_store().find(job.raw_id, 0).state is State.GONE


def test_a_schedule_that_was_deleted_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    noop.schedules.set_many([{"name": name, "every": HOUR} for name in NAMES])
    fast, slow = Process(), Process()
    fast.spread_over(2)
    slow.store.layouts.read()
    deleted = list[bool]()

    def move_and_delete() -> None:
        assert ScheduleMoves(fast.store.producer_shard(0)).move_all() == 0
        deleted.extend(fast.call(noop.schedules.delete, name) for name in NAMES)

    before_the_first(monkeypatch, ScheduleMoves, "take_over_schedule", move_and_delete)
    ScheduleMoves(slow.store.producer_shard(0)).move_all()
    assert deleted == [True] * len(NAMES)
    assert slow.call(lambda: list(noop.schedules.iter())) == []


@pytest.mark.parametrize("is_old", [False, True])
def test_a_handle_that_was_read_before_the_move_finds_the_schedule(is_old: bool) -> None:
    noop.schedules.set_many([{"name": name, "every": HOUR} for name in NAMES])
    process, mover = Process(), Process()
    handles: list[ScheduleHandle] = process.call(lambda: [noop.schedules.get(name) for name in NAMES])
    mover.spread_over(2)
    assert ScheduleMoves(mover.store.producer_shard(0)).move_all() == 0
    if not is_old:
        process.store.layouts.read()
    for handle in handles:
        at_once = process.call(handle.run_now)
        assert from_text(at_once.id) == (at_once._raw_id, mover.store.layout.home(handle._stored.id))
        assert process.call(handle.pause) and process.call(handle.resume)
        assert process.call(handle.refresh) is handle and not handle.is_paused
        assert process.call(handle.delete) and not process.call(handle.delete)
    assert process.call(lambda: list(noop.schedules.iter())) == []
