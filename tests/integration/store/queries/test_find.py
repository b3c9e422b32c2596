"""Find: one job in any state, with its times and records."""

import pytest

from django_delayq.job.job import State
from django_delayq.job.outcome import Action
from tests.shard_apis import HOUR, MS, SECOND, START, ShardApis


def test_scheduled_job_shows_its_due_time_to_the_microsecond(apis: ShardApis) -> None:
    raw_id = apis.add("argument", queue="mail", due=START + 1)
    found = apis.inspection.find(raw_id)
    assert (found.state, found.moment_us) == (State.SCHEDULED, START + 1)
    assert found.job is not None
    assert (found.job.args, found.job.queue) == (["argument"], "mail")


@pytest.mark.parametrize("priority", [-100, 0, 100])
@pytest.mark.parametrize("delay", [None, 1_234_567])
def test_ready_job_shows_its_due_time_to_the_millisecond(apis: ShardApis, priority: int, delay: int | None) -> None:
    raw_id = apis.add(priority=priority, delay=delay)
    apis.clock.advance(HOUR)
    apis.promote()
    found = apis.inspection.find(raw_id)
    assert (found.state, found.moment_us) == (State.READY, (START + (delay or 0)) // MS * MS)


def test_claimed_job_shows_its_due_time_and_its_start(apis: ShardApis) -> None:
    raw_id = apis.add(delay=SECOND, priority=5)
    apis.clock.advance(HOUR)
    apis.promote()
    apis.worker().take()
    found = apis.inspection.find(raw_id)
    assert (found.state, found.claimed_us) == (State.CLAIMED, START + HOUR)
    assert found.moment_us == (START + SECOND) // MS * MS


def test_job_between_attempts_shows_its_history(apis: ShardApis) -> None:
    raw_id = apis.add()
    worker = apis.worker()
    worker.settle(worker.take().claims[0], Action.RETRY, delay=HOUR, error="no luck")
    found = apis.inspection.find(raw_id)
    assert (found.state, found.moment_us) == (State.SCHEDULED, START + HOUR)
    assert (found.attempts.ended, found.attempts.last_error) == (1, "no luck")


def test_dead_job_shows_its_death_and_history(apis: ShardApis) -> None:
    raw_id = apis.add("argument", key="k")
    apis.clock.advance(1)
    apis.kill(raw_id)
    found = apis.inspection.find(raw_id)
    assert (found.state, found.moment_us, found.attempts.ended) == (State.DEAD, START + 1, 1)
    assert found.job is not None
    assert (found.job.args, found.job.key) == (["argument"], "k")


def test_job_that_ended_is_gone(apis: ShardApis) -> None:
    done, cancelled = apis.add(priority=1), apis.add()
    worker = apis.worker()
    worker.settle(worker.take().claims[0], Action.ACKNOWLEDGE)
    apis.operations.cancel(cancelled)
    for raw_id in (done, cancelled, b"\x01" * 12):
        found = apis.inspection.find(raw_id)
        assert (found.state, found.job) == (State.GONE, None)
    assert apis.inspection.dead_letter(done) is None


def test_a_wrong_queue_is_corrected(apis: ShardApis) -> None:
    draft = apis.draft(queue="a", delay=HOUR)
    apis.enqueue(draft)
    apis.operations.move(draft.job.raw_id, "b")
    found = apis.inspection.find(draft.job.raw_id, queue="a", member=draft.job.member)
    assert found.state is State.SCHEDULED
    assert found.job is not None
    assert found.job.queue == "b"


@pytest.mark.parametrize("body", [b"", b"\x01", b"\x01\x64\x00\xff"])
def test_damaged_body_does_not_stop_the_search(apis: ShardApis, body: bytes) -> None:
    raw_id = apis.add()
    apis.client.hset(apis.keys("jobs"), raw_id, body)
    assert apis.inspection.find(raw_id).job is None


def test_finding_changes_nothing(apis: ShardApis) -> None:
    ready, dead = apis.add(key="k"), apis.add_dead(queue="b")
    before = {key: apis.client.dump(key) for key in apis.client.keys("*")}
    for raw_id in (ready, dead, b"\x01" * 12):
        apis.inspection.find(raw_id)
    assert {key: apis.client.dump(key) for key in apis.client.keys("*")} == before


def test_holder_of_a_key_is_found(apis: ShardApis) -> None:
    draft = apis.draft(key="k", delay=HOUR)
    apis.enqueue(draft)
    (digest,) = apis.client.hkeys(apis.keys("unique_keys"))
    assert apis.inspection.holder(digest) == draft.job.raw_id
    assert apis.inspection.holder(b"\0" * 16) is None


def test_counts_include_every_place(apis: ShardApis) -> None:
    apis.add_dead(queue="a")
    apis.enqueue(*[apis.draft(queue="a", delay=HOUR) for _ in range(2)], *[apis.draft(queue="b") for _ in range(4)])
    apis.worker().take(1, "b")
    counts = apis.inspection.counts()
    assert (counts.scheduled, counts.ready) == ({"a": 2, "b": 0}, {"a": 0, "b": 3})
    assert (counts.claimed, counts.dead) == (1, 1)


def test_full_memory_does_not_stop_the_search(own_apis: ShardApis) -> None:
    raw_id = own_apis.add()
    own_apis.fill_memory()
    assert own_apis.inspection.find(raw_id).state is State.READY


def test_flushed_scripts_are_loaded_again(apis: ShardApis) -> None:
    raw_id = apis.add()
    apis.inspection.find(raw_id)
    apis.client.script_flush()
    assert apis.inspection.find(raw_id).state is State.READY
