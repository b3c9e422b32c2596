"""Pause, resume: a queue's jobs are not taken, still become ready, and are taken again; a worker asked to be quiet."""

import pytest

from django_delayq.job.outcome import Action
from tests.shard_apis import SECOND, START, Doors, ids, settlement


def test_jobs_of_a_paused_queue_are_not_taken_and_those_of_others_are(doors: Doors) -> None:
    doors.add(queue="paused")
    other = doors.add(queue="other")
    assert doors.operations.pause("paused", by="ann")
    answer = doors.worker().take(10, "paused", "other")
    assert ids(answer.claims) == [other]
    assert not answer.has_more


def test_no_bell_rings_for_what_is_left_in_a_paused_queue(doors: Doors) -> None:
    """It would keep every worker awake."""
    doors.add(queue="paused")
    doors.operations.pause("paused", by="ann")
    assert doors.rings(doors.keys.notify("paused")) == [1]
    doors.worker().take(1, "paused")
    assert doors.rings(doors.keys.notify("paused")) == [0]


def test_jobs_still_become_ready_and_the_dispatcher_sleeps(doors: Doors) -> None:
    raw_id = doors.add(queue="paused", delay=SECOND)
    doors.operations.pause("paused", by="ann")
    doors.clock.advance(SECOND)
    assert doors.promote().moved == 1
    assert doors.where(raw_id) == ["ready:paused"]
    assert doors.promote().sleep_us > 0


def test_what_runs_already_can_be_settled_and_goes_back(doors: Doors) -> None:
    raw_id = doors.add(queue="paused")
    worker = doors.worker()
    (claim,) = worker.take(1, "paused").claims
    doors.operations.pause("paused", by="ann")
    assert not worker.take(1, "paused", settle=[settlement(claim, Action.RELEASE)]).claims
    assert doors.where(raw_id) == ["ready:paused"]


def test_resume_rings_and_the_jobs_are_taken_in_their_order(doors: Doors) -> None:
    first, second = doors.add(queue="paused"), doors.add(queue="paused")
    doors.operations.pause("paused", by="ann")
    doors.rings(doors.keys.notify("paused"))
    assert doors.operations.resume("paused")
    assert doors.rings(doors.keys.notify("paused")) == [1]
    assert ids(doors.worker().take(5, "paused").claims) == [first, second]


def test_resume_of_an_empty_queue_wakes_nobody(doors: Doors) -> None:
    doors.operations.pause("empty", by="ann")
    assert doors.operations.resume("empty")
    assert doors.rings(doors.keys.notify("empty")) == [0]


def test_who_paused_first_is_told_until_it_is_resumed(doors: Doors) -> None:
    doors.add(queue="mail")
    assert doors.operations.pause("mail", by="ann é\ud800")
    doors.clock.advance(SECOND)
    assert not doors.operations.pause("mail", by="bob")
    pause = doors.store.dashboard(0).snapshot().queues["mail"].paused
    assert pause is not None
    assert (pause.by, pause.at_us) == ("ann é?", START)
    assert doors.operations.resume("mail")
    assert not doors.operations.resume("mail")
    assert doors.store.dashboard(0).snapshot().queues["mail"].paused is None


def test_a_pause_can_be_set_before_the_first_job_and_by_a_name_of_any_length(doors: Doors) -> None:
    assert doors.operations.pause("later", by="x" * 10_000)
    doors.add(queue="later")
    pause = doors.store.dashboard(0).snapshot().queues["later"].paused
    assert pause is not None
    assert pause.by == "x" * 200
    assert not doors.worker().take(1, "later").claims


@pytest.mark.parametrize("by", ["ann", ""])
def test_a_worker_asked_to_be_quiet_hears_so_with_its_reports_until_it_is_taken_back(doors: Doors, by: str) -> None:
    worker, reports = doors.worker(), doors.store.process_reports(doors.shard)
    worker.take(0)
    assert not reports.report(worker.code, "worker", {}, {})
    assert doors.operations.quiet(worker.code, by=by)
    assert not doors.operations.quiet(worker.code, by=by)
    assert [reports.report(worker.code, "worker", {}, {}) for _ in range(2)] == [True, True]
    assert doors.operations.unquiet(worker.code)
    assert not reports.report(worker.code, "worker", {}, {})
    assert not doors.operations.unquiet(worker.code)


def test_nobody_can_be_asked_who_is_not_there(doors: Doors) -> None:
    assert not doors.operations.quiet(b"nobody..", by="ann")
    assert not doors.client.exists(doors.keys("quiet_workers"))
