"""Reschedule: a waiting job gets another time: earlier, later, or now."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from django_delayq.job.outcome import Action
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from django_delayq.store.nodes.connection_cache import PendingReply
from django_delayq.store.routing.route import Route
from tests.one_by_one import OneByOne
from tests.shard_apis import DAY, HOUR, SECOND, START, ShardApis

SPANS = pytest.mark.parametrize("span", [1, SECOND, DAY, 365 * DAY, 3_650 * DAY])


@SPANS
@pytest.mark.parametrize("before", [None, HOUR])
def test_delay_counts_from_now_to_the_microsecond(apis: ShardApis, span: int, before: int | None) -> None:
    raw_id = apis.add(delay=before)
    apis.clock.advance(7)
    assert apis.operations.reschedule(raw_id, delay_us=span) == START + 7 + span
    assert apis.scheduled() == {raw_id: START + 7 + span}
    assert apis.where(raw_id) == ["scheduled:default"]


@SPANS
def test_time_is_kept_to_the_microsecond(apis: ShardApis, span: int) -> None:
    raw_id = apis.add(delay=HOUR)
    assert apis.operations.reschedule(raw_id, due_us=START + span) == START + span
    assert apis.scheduled() == {raw_id: START + span}


@pytest.mark.parametrize("due", [START, START - 1, -62_135_596_800_000_000])
def test_a_time_in_the_past_makes_the_job_ready_now(apis: ShardApis, due: int) -> None:
    raw_id = apis.add(delay=HOUR)
    apis.notifications(apis.keys.notify("default"))
    assert apis.operations.reschedule(raw_id, due_us=due) == START
    assert apis.where(raw_id) == ["ready:default"]
    assert apis.notifications(apis.keys.notify("default")) == [1]


def test_a_delay_of_0_makes_the_job_ready_now(apis: ShardApis) -> None:
    raw_id = apis.add(delay=HOUR)
    assert apis.operations.reschedule(raw_id, delay_us=0) == START
    assert apis.where(raw_id) == ["ready:default"]


def test_ready_job_can_be_postponed(apis: ShardApis) -> None:
    raw_id = apis.add(priority=7)
    apis.operations.reschedule(raw_id, delay_us=SECOND)
    assert apis.worker().take().claims == []
    apis.clock.advance(SECOND)
    apis.promote()
    (claim,) = apis.worker().take().claims
    assert (claim.raw_id, claim.job and claim.job.priority) == (raw_id, 7)


def test_ready_job_rescheduled_to_now_goes_behind_those_that_waited(apis: ShardApis) -> None:
    first = apis.add()
    apis.clock.advance(SECOND)
    second = apis.add()
    apis.clock.advance(SECOND)
    apis.operations.reschedule(first, delay_us=0)
    assert list(apis.ready()) == [second, first]


def test_an_earlier_time_notifies_the_dispatcher_and_a_later_one_does_not(apis: ShardApis) -> None:
    raw_id = apis.add(delay=2 * SECOND)
    apis.promote()
    notified = []
    for delay in (SECOND, 3 * SECOND):
        apis.notifications(apis.keys("notify_dispatcher"))
        apis.operations.reschedule(raw_id, delay_us=delay)
        notified += apis.notifications(apis.keys("notify_dispatcher"))
    assert notified == [1, 0]


def test_running_job_is_too_late(apis: ShardApis) -> None:
    raw_id = apis.add()
    apis.worker().take()
    assert apis.operations.reschedule(raw_id, delay_us=HOUR) is None
    assert apis.where(raw_id) == ["leases"]


def test_dead_and_ended_jobs_are_too_late(apis: ShardApis) -> None:
    dead, ended = apis.add_dead(), apis.add()
    worker = apis.worker()
    worker.settle(worker.take().claims[0], Action.ACKNOWLEDGE)
    assert apis.operations.reschedule(dead, delay_us=HOUR) is None
    assert apis.operations.reschedule(ended, delay_us=HOUR) is None
    assert (apis.where(dead), apis.where(ended)) == (["dead_letters"], [])


def test_moved_job_is_found(apis: ShardApis) -> None:
    raw_id = apis.add(delay=HOUR)
    apis.operations.move(raw_id, "other")
    assert apis.operations.reschedule(raw_id, delay_us=SECOND) == START + SECOND
    assert apis.scheduled("other") == {raw_id: START + SECOND}


def test_key_stays_held(apis: ShardApis) -> None:
    raw_id = apis.add(key="k", delay=HOUR)
    apis.operations.reschedule(raw_id, delay_us=SECOND)
    assert apis.enqueue(apis.draft(key="k")).held == {0: raw_id}


def test_full_memory_does_not_lose_the_job(own_apis: ShardApis) -> None:
    raw_id = own_apis.add(delay=HOUR)
    own_apis.fill_memory()
    assert own_apis.operations.reschedule(raw_id, delay_us=SECOND) == START + SECOND
    assert own_apis.operations.reschedule(raw_id, delay_us=0) == START
    assert own_apis.where(raw_id) == ["ready:default"]


def test_flushed_scripts_are_loaded_again(apis: ShardApis) -> None:
    raw_id = apis.add(delay=HOUR)
    apis.operations.reschedule(raw_id, delay_us=SECOND)
    apis.client.script_flush()
    assert apis.operations.reschedule(raw_id, delay_us=HOUR) == START + HOUR


@pytest.mark.parametrize("key", [None, "k"])
def test_a_postponed_immediate_job_has_the_head_start_of_due_jobs(apis: ShardApis, key: str | None) -> None:
    raw_id = apis.add("put off", key=key, priority=3)
    backlog = apis.add(priority=3)
    assert apis.operations.reschedule(raw_id, delay_us=SECOND)
    apis.clock.advance(SECOND)
    apis.promote()
    assert list(apis.ready()) == [raw_id, backlog]
    (claim,) = apis.worker().take().claims
    assert claim.job and (claim.raw_id, claim.job.args, claim.job.priority) == (raw_id, ["put off"], 3)
    assert claim.due_us == (START + SECOND) // 1_000 * 1_000


def test_a_postponed_job_is_found_holds_its_key_and_can_be_cancelled(apis: ShardApis) -> None:
    raw_id = apis.add(key="k")
    assert apis.operations.reschedule(raw_id, delay_us=HOUR)
    assert apis.inspection.find(raw_id).state == "scheduled"
    assert apis.enqueue(apis.draft(key="k")).held == {0: raw_id}
    assert list(ConsistencyCheck(apis.shard).walk()) == []
    assert apis.operations.reschedule(raw_id, delay_us=DAY) == START + DAY
    assert apis.operations.move(raw_id, "mail")
    assert apis.operations.cancel(raw_id)
    assert apis.traces(raw_id) == []


def test_a_postponed_signed_job_is_signed_again(make_apis: Callable[..., ShardApis]) -> None:
    apis = make_apis(SIGN=True)
    draft = apis.draft("signed")
    apis.enqueue(draft)
    raw_id = draft.job.raw_id
    assert apis.operations.reschedule(raw_id, delay_us=SECOND)
    apis.clock.advance(SECOND)
    apis.promote()
    (claim,) = apis.worker().take().claims
    assert claim.fault is None and claim.job and claim.job.args == ["signed"]


def test_a_job_with_a_wrong_signature_can_still_be_postponed(make_apis: Callable[..., ShardApis]) -> None:
    raw_id = make_apis().add()
    apis = make_apis(SIGN=True)
    assert apis.operations.reschedule(raw_id, delay_us=SECOND) == START + SECOND


@pytest.mark.parametrize("how", ["moved", "requeued with other arguments"])
def test_a_body_that_changed_since_it_was_read_is_read_again(how: str, apis: ShardApis) -> None:
    raw_id = apis.add("old")
    other, changes = apis.draft("new", raw_id=raw_id), [how]

    class ChangedMeanwhile(Route):
        """A route after whose first read somebody else changes the job."""

        def read_all(self, commands: Sequence[bytes], reply: PendingReply | None = None, **options: Any) -> Any:
            found = super().read_all(commands, reply, **options)
            if b"HGET" in commands[0] and changes:
                if changes.pop() == "moved":
                    assert apis.operations.move(raw_id, "mail")
                else:
                    apis.client.hset(apis.keys("jobs"), raw_id, other.body)
            return found

    assert OneByOne(apis.over(ChangedMeanwhile)).reschedule(raw_id, delay_us=SECOND) == START + SECOND
    queue, argument = ("mail", "old") if how == "moved" else ("default", "new")
    assert apis.where(raw_id) == [f"scheduled:{queue}"]
    assert list(ConsistencyCheck(apis.shard).walk()) == []
    apis.clock.advance(SECOND)
    apis.promote()
    (claim,) = apis.worker().take(1, queue).claims
    assert claim.job and claim.job.args == [argument]
