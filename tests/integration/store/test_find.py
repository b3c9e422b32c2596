"""Find: one job in any state, with its times and records."""

import pytest

from django_delayq.job.job import State
from django_delayq.job.outcome import Action
from tests.shard_apis import HOUR, MS, SECOND, START, Doors


def test_scheduled_job_tells_its_due_time_to_the_microsecond(doors: Doors) -> None:
    raw_id = doors.add("argument", queue="mail", due=START + 1)
    found = doors.inspection.find(raw_id)
    assert (found.state, found.moment_us) == (State.SCHEDULED, START + 1)
    assert found.job is not None
    assert (found.job.args, found.job.queue) == (["argument"], "mail")


@pytest.mark.parametrize("priority", [-100, 0, 100])
@pytest.mark.parametrize("delay", [None, 1_234_567])
def test_ready_job_tells_its_due_time_to_the_millisecond(doors: Doors, priority: int, delay: int | None) -> None:
    raw_id = doors.add(priority=priority, delay=delay)
    doors.clock.advance(HOUR)
    doors.promote()
    found = doors.inspection.find(raw_id)
    assert (found.state, found.moment_us) == (State.READY, (START + (delay or 0)) // MS * MS)


def test_claimed_job_tells_its_due_time_and_its_start(doors: Doors) -> None:
    raw_id = doors.add(delay=SECOND, priority=5)
    doors.clock.advance(HOUR)
    doors.promote()
    doors.worker().take()
    found = doors.inspection.find(raw_id)
    assert (found.state, found.claimed_us) == (State.CLAIMED, START + HOUR)
    assert found.moment_us == (START + SECOND) // MS * MS


def test_job_between_attempts_tells_its_history(doors: Doors) -> None:
    raw_id = doors.add()
    worker = doors.worker()
    worker.settle(worker.take().claims[0], Action.RETRY, delay=HOUR, error="no luck")
    found = doors.inspection.find(raw_id)
    assert (found.state, found.moment_us) == (State.SCHEDULED, START + HOUR)
    assert (found.attempts.ended, found.attempts.last_error) == (1, "no luck")


def test_dead_job_tells_its_death_and_history(doors: Doors) -> None:
    raw_id = doors.add("argument", key="k")
    doors.clock.advance(1)
    doors.kill(raw_id)
    found = doors.inspection.find(raw_id)
    assert (found.state, found.moment_us, found.attempts.ended) == (State.DEAD, START + 1, 1)
    assert found.job is not None
    assert (found.job.args, found.job.key) == (["argument"], "k")


def test_job_that_ended_is_gone(doors: Doors) -> None:
    done, cancelled = doors.add(priority=1), doors.add()
    worker = doors.worker()
    worker.settle(worker.take().claims[0], Action.ACKNOWLEDGE)
    doors.operations.cancel(cancelled)
    for raw_id in (done, cancelled, b"\x01" * 12):
        found = doors.inspection.find(raw_id)
        assert (found.state, found.job) == (State.GONE, None)
    assert doors.inspection.dead_letter(done) is None


def test_wrong_guess_of_the_queue_is_mended(doors: Doors) -> None:
    draft = doors.draft(queue="a", delay=HOUR)
    doors.enqueue(draft)
    doors.operations.move(draft.job.raw_id, "b")
    found = doors.inspection.find(draft.job.raw_id, queue="a", member=draft.job.member)
    assert found.state is State.SCHEDULED
    assert found.job is not None
    assert found.job.queue == "b"


@pytest.mark.parametrize("body", [b"", b"\x01", b"\x01\x64\x00\xff"])
def test_damaged_body_does_not_stop_the_search(doors: Doors, body: bytes) -> None:
    raw_id = doors.add()
    doors.client.hset(doors.keys("jobs"), raw_id, body)
    assert doors.inspection.find(raw_id).job is None


def test_finding_changes_nothing(doors: Doors) -> None:
    ready, dead = doors.add(key="k"), doors.add_dead(queue="b")
    before = {key: doors.client.dump(key) for key in doors.client.keys("*")}
    for raw_id in (ready, dead, b"\x01" * 12):
        doors.inspection.find(raw_id)
    assert {key: doors.client.dump(key) for key in doors.client.keys("*")} == before


def test_holder_of_a_key_is_found(doors: Doors) -> None:
    draft = doors.draft(key="k", delay=HOUR)
    doors.enqueue(draft)
    (digest,) = doors.client.hkeys(doors.keys("unique_keys"))
    assert doors.inspection.holder(digest) == draft.job.raw_id
    assert doors.inspection.holder(b"\0" * 16) is None


def test_counts_tell_every_place(doors: Doors) -> None:
    doors.add_dead(queue="a")
    doors.enqueue(*[doors.draft(queue="a", delay=HOUR) for _ in range(2)], *[doors.draft(queue="b") for _ in range(4)])
    doors.worker().take(1, "b")
    counts = doors.inspection.counts()
    assert (counts.scheduled, counts.ready) == ({"a": 2, "b": 0}, {"a": 0, "b": 3})
    assert (counts.claimed, counts.dead) == (1, 1)


def test_full_memory_does_not_stop_the_search(own_doors: Doors) -> None:
    raw_id = own_doors.add()
    own_doors.fill_memory()
    assert own_doors.inspection.find(raw_id).state is State.READY


def test_flushed_scripts_are_loaded_again(doors: Doors) -> None:
    raw_id = doors.add()
    doors.inspection.find(raw_id)
    doors.client.script_flush()
    assert doors.inspection.find(raw_id).state is State.READY
