"""`unique="replace"`: a waiting job that holds the key gets the arguments, options and time of the new enqueue."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from django_delayq import RetryPolicy, Task, delayed_task, enqueue_many
from django_delayq.exceptions import StoreError
from django_delayq.job.outcome import Action
from django_delayq.signals import job_enqueued
from django_delayq.store.enqueue import Enqueue, Holder, key_digest
from django_delayq.task import registry
from django_delayq.task.handle import JobHandle
from django_delayq.testing import DelayQ
from tests.shard_apis import HOUR, ShardApis

#: The handles of the jobs that runs enqueued.
again: list[JobHandle] = []


def save(number: int, *, fails: bool = False, repeats: bool = False) -> None:
    """Be a task that may enqueue itself, and may fail."""
    if repeats:
        task: Task[..., Any] = registry.get("save")
        again.append(task.enqueue(number + 1))
    if fails:
        raise RuntimeError("this attempt fails")


@pytest.fixture(autouse=True)
def no_handles() -> None:
    """Forget the handles of the last test."""
    again.clear()


@pytest.fixture
def task() -> Task[..., None]:
    return delayed_task(name="save", key="document", unique="replace")(save)


def test_a_waiting_job_gets_arguments_options_and_time(delayq: DelayQ, task: Task[..., None]) -> None:
    first = task.after(3_600).enqueue(1)
    second = task.using(delay=60, queue="mail", priority=7, timeout=5).enqueue(2)
    assert (second.id, second.created, second.replaced) == (first.id, False, True)
    assert (first.created, first.replaced) == (True, False)
    job = second.job
    assert job is not None
    assert (job.args, job.queue, job.priority, job.timeout_us, job.key) == ([2], "mail", 7, 5_000_000, "document")
    assert [each.due for each in delayq.enqueued] == [second.due]
    delayq.advance(59, run=True)
    assert delayq.ran == []
    delayq.advance(1, run=True)
    assert [job.args for job in delayq.ran] == [[2]]
    delayq.drain()
    assert len(delayq.ran) == 1


def test_a_ready_job_can_wait_again(delayq: DelayQ, task: Task[..., None]) -> None:
    first = task.enqueue(1)
    assert first.state == "ready"
    assert task.after(60).enqueue(2).state == "scheduled"
    assert delayq.run_due() == []
    assert task.enqueue(3).id == first.id
    assert [job.args for job in delayq.run_due()] == [[3]]


def test_a_free_key_means_a_new_job(delayq: DelayQ, task: Task[..., None]) -> None:
    first = task.enqueue(1)
    delayq.drain()
    second = task.enqueue(2)
    assert second.created and not second.replaced and second.id != first.id
    assert task.using(key="other").enqueue(3).created


def test_a_job_without_a_key_replaces_nothing(delayq: DelayQ) -> None:
    task = delayed_task(name="save", unique="replace")(save)
    assert task.enqueue(1).created and task.enqueue(2).created


def test_a_running_job_is_kept(delayq: DelayQ, task: Task[..., None]) -> None:
    first = task.enqueue(1, repeats=True)
    delayq.drain()
    [kept] = again
    assert (kept.id, kept.created, kept.replaced) == (first.id, False, False)
    assert [job.args for job in delayq.ran] == [[1]]


def test_with_until_start_the_call_during_a_run_is_the_next_job(delayq: DelayQ, task: Task[..., None]) -> None:
    first = task.using(until="start").enqueue(1, repeats=True)
    delayq.drain()
    assert again[0].created and again[0].id != first.id
    assert [job.args for job in delayq.ran] == [[1], [2]]


def test_a_job_between_its_attempts_begins_anew(delayq: DelayQ, task: Task[..., None]) -> None:
    twice = task.using(retry=RetryPolicy(max_attempts=2, delays=[60]))
    first = twice.enqueue(1, fails=True)
    delayq.run_due(errors="retry")
    assert first.refresh().attempts == 1
    assert twice.enqueue(2, fails=True).id == first.id
    assert (first.refresh().attempts, first.error) == (0, None)
    delayq.drain(errors="retry")
    assert [(job.args, job.attempt) for job in delayq.ran] == [([1], 1), ([2], 1), ([2], 2)]
    assert [each.id for each in delayq.dead] == [first.id]


def test_of_a_batch_the_last_call_counts_under_the_first_id(delayq: DelayQ, task: Task[..., None]) -> None:
    announced = []
    receiver = lambda job, **_: announced.append(job.args)  # noqa: E731
    job_enqueued.connect(receiver)
    other = task.using(key="other")
    handles = [task.job(1), other.job(2), task.job(3), delayed_task(name="plain")(_plain).job(), task.after(9).job(4)]
    try:
        enqueue_many(handles)
    finally:
        job_enqueued.disconnect(receiver)
    first, _, third, _, last = handles
    assert first.id == third.id == last.id
    assert [each.created for each in handles] == [True, True, False, True, False]
    assert [each.replaced for each in handles] == [False, False, True, False, True]
    assert sorted(job.args for job in delayq.enqueued) == [[], [2], [4]]
    assert first.due == last.due
    assert first.job is not None and first.job.args == [4]
    assert sorted(announced) == [[], [2], [4]]


def _plain() -> None: ...


@pytest.mark.django_db(transaction=True)
def test_of_a_transaction_the_last_call_counts(delayq: DelayQ, task: Task[..., None]) -> None:
    with transaction.atomic():
        first = task.enqueue(1)
        second = task.enqueue(2)
    assert first.id == second.id and second.replaced
    assert [job.args for job in delayq.run_due()] == [[2]]


def test_from_async_code(delayq: DelayQ, task: Task[..., None]) -> None:
    first = task.enqueue(1)
    second = asyncio.run(task.after(60).aenqueue(2))
    assert (second.id, second.replaced) == (first.id, True)


@pytest.mark.parametrize("option", ["SIGN", "ENCRYPT"])
def test_a_worker_accepts_what_was_written_for_the_holder(make_apis: Callable[..., ShardApis], option: str) -> None:
    apis = make_apis(**{option: True})
    holder = apis.add(1, key="k")
    assert apis.enqueue(apis.draft(2, key="k", unique="replace")).replaced == {0}
    [claim] = apis.worker().take(5).claims
    assert claim.raw_id == holder and claim.job is not None and claim.job.args == [2]


@pytest.mark.parametrize("delay", [None, HOUR])
def test_a_repeated_call_stores_no_second_job(apis: ShardApis, delay: int | None) -> None:
    draft = apis.draft(key="k", unique="replace", delay=delay)
    first, again = apis.enqueue(draft), apis.enqueue(draft)
    assert (first.held, first.replaced) == (again.held, again.replaced) == ({}, frozenset())
    assert len({**apis.scheduled(), **apis.ready()}) == 1
    worker = apis.worker()
    apis.clock.advance(HOUR)
    apis.promote()
    [claim] = worker.take(5).claims
    assert apis.enqueue(draft).held == {}
    worker.settle(claim, Action.ACKNOWLEDGE)
    assert apis.traces(draft.job.raw_id) == []


def test_a_repeated_call_does_not_replace_a_later_one(apis: ShardApis) -> None:
    first = apis.draft("first", key="k", unique="replace", until_start=True)
    apis.enqueue(first)
    apis.worker().take(1)
    second = apis.draft("second", key="k", unique="replace", until_start=True)
    assert apis.enqueue(second).held == {}
    # Its first reply was lost.
    assert apis.enqueue(first).replaced == set()
    found = apis.store.lookup(0).find(second.job.raw_id)
    assert found.job is not None and found.job.args == ["second"]


def test_a_running_job_of_an_older_worker_holds_no_key_that_ends_at_its_start(apis: ShardApis) -> None:
    first = apis.draft(key="k", unique="replace", until_start=True)
    apis.enqueue(first)
    apis.worker().take(1)
    # An older script does not give it up.
    apis.client.hset(apis.keys("unique_keys"), key_digest(first.job.task, "k", None), first.job.member)
    second = apis.draft(key="k", unique="replace", until_start=True)
    assert apis.enqueue(second).held == {}
    assert list(apis.ready()) == [second.job.raw_id]


def test_names_may_be_long(apis: ShardApis) -> None:
    queue = "q" * 200
    holder = apis.add(key="k", queue=queue, delay=HOUR)
    assert apis.enqueue(apis.draft(key="k", unique="replace", queue=queue)).held == {0: holder}


def test_a_full_redis_accepts_no_replacement(own_apis: ShardApis) -> None:
    own_apis.add(key="k", delay=HOUR)
    own_apis.fill_memory()
    batch = [own_apis.draft(key=f"{number}", unique="replace") for number in range(20)]
    with pytest.raises(StoreError) as caught:
        own_apis.enqueue(own_apis.draft("x" * 100_000, key="k", unique="replace"), *batch)
    assert not caught.value.maybe_accepted
    own_apis.free_memory()
    assert own_apis.client.hlen(own_apis.keys("jobs")) == 1


def test_a_ready_job_keeps_its_turn(apis: ShardApis) -> None:
    holder = apis.add(key="k")
    apis.clock.advance(1_000_000)
    other = apis.add()
    assert apis.enqueue(apis.draft(key="k", unique="replace")).replaced == {0}
    assert [claim.raw_id for claim in apis.worker().take(2).claims] == [holder, other]


def test_another_priority_is_another_turn(apis: ShardApis) -> None:
    holder = apis.add(key="k")
    apis.clock.advance(1_000_000)
    other = apis.add()
    apis.enqueue(apis.draft(key="k", unique="replace", priority=-1))
    assert [claim.raw_id for claim in apis.worker().take(2).claims] == [other, holder]


def test_a_call_that_arrives_after_its_cancel_changes_nothing(apis: ShardApis) -> None:
    holder = apis.add(key="k", delay=HOUR)
    late = apis.draft("late", key="k", unique="replace")
    apis.operations.cancel(late.job.raw_id, may_arrive=True)
    assert apis.enqueue(late).replaced == set()
    found = apis.store.lookup(0).find(holder)
    assert found.job is not None and found.job.args == []


class Moving(Enqueue):
    """Holders move to another queue after each read, so often."""

    def __init__(self, apis: ShardApis, moves: int) -> None:
        super().__init__(apis.shard)
        self.apis, self.moves, self.reads = apis, moves, 0

    def find_holders(self, digests: Any) -> list[Holder | None]:
        holders = super().find_holders(digests)
        if self.reads < self.moves:
            self.apis.operations.move(holders[-1].raw_id, f"q{self.reads}")  # type: ignore[union-attr]
        self.reads += 1
        return holders


def test_holders_that_move_meanwhile_are_read_again(apis: ShardApis) -> None:
    holder = apis.add(key="k", delay=HOUR)
    batch = [apis.draft(key="free", unique="replace"), apis.draft("new", key="k", unique="replace")]
    moving = Moving(apis, moves=2)
    result = moving.enqueue(batch)
    assert (result.held, result.replaced, moving.reads) == ({1: holder}, {1}, 3)
    found = apis.store.lookup(0).find(holder)
    assert found.job is not None and found.job.args == ["new"]


def test_a_holder_that_moves_on_and_on_is_an_error_and_nothing_is_stored(apis: ShardApis) -> None:
    holder = apis.add(key="k", delay=HOUR)
    batch = [apis.draft(key="free", unique="replace"), apis.draft("new", key="k", unique="replace")]
    with pytest.raises(StoreError, match="changed 10 times before they could be replaced") as caught:
        Moving(apis, moves=10).enqueue(batch)
    assert caught.value.retryable and not caught.value.maybe_accepted
    assert apis.traces(batch[0].job.raw_id) == []
    found = apis.store.lookup(0).find(holder)
    assert found.job is not None and found.job.args == []


class Overtaken(Enqueue):
    """Another job takes the key after the holders were read for the first time."""

    def __init__(self, apis: ShardApis, holder: bytes | None) -> None:
        super().__init__(apis.shard)
        self.apis, self.holder, self.other = apis, holder, b""

    def find_holders(self, digests: Any) -> list[Holder | None]:
        holders = super().find_holders(digests)
        if not self.other:
            if self.holder:
                self.apis.operations.cancel(self.holder)
            self.other = self.apis.add("other", key="k", delay=HOUR)
        return holders


@pytest.mark.parametrize("is_held", [True, False])
def test_the_holder_of_the_moment_is_replaced(apis: ShardApis, is_held: bool) -> None:
    overtaken = Overtaken(apis, apis.add(key="k", delay=HOUR) if is_held else None)
    result = overtaken.enqueue([apis.draft("new", key="k", unique="replace")])
    assert (result.held, result.replaced) == ({0: overtaken.other}, {0})
    found = apis.store.lookup(0).find(overtaken.other)
    assert found.job is not None and found.job.args == ["new"]
