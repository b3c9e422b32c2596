"""Pause, resume, quiet: a paused queue's jobs are not claimed but become ready; a quiet worker claims nothing."""

import pytest

from django_delayq.job.outcome import Action
from django_delayq.store.process_reports import ProcessReports
from django_delayq.store.queries.snapshot import Pause
from tests.shard_apis import HOUR, SECOND, START, ShardApis, ids, settlement


def test_jobs_of_a_paused_queue_are_not_claimed_and_those_of_others_are(apis: ShardApis) -> None:
    apis.add(queue="paused")
    other = apis.add(queue="other")
    assert apis.operations.pause("paused", by="ann")
    answer = apis.worker().take(10, "paused", "other")
    assert ids(answer.claims) == [other]
    assert not answer.has_more


def test_no_notification_is_sent_for_jobs_of_a_paused_queue(apis: ShardApis) -> None:
    """It would keep every worker busy."""
    apis.add(queue="paused")
    apis.operations.pause("paused", by="ann")
    assert apis.notifications(apis.keys.notify("paused")) == [1]
    apis.worker().take(1, "paused")
    assert apis.notifications(apis.keys.notify("paused")) == [0]


def test_jobs_still_become_ready_and_the_dispatcher_sleeps(apis: ShardApis) -> None:
    raw_id = apis.add(queue="paused", delay=SECOND)
    apis.operations.pause("paused", by="ann")
    apis.clock.advance(SECOND)
    assert apis.promote().moved == 1
    assert apis.where(raw_id) == ["ready:paused"]
    assert apis.promote().sleep_us > 0


def test_running_jobs_of_a_paused_queue_can_be_settled_and_return_to_it(apis: ShardApis) -> None:
    raw_id = apis.add(queue="paused")
    worker = apis.worker()
    (claim,) = worker.take(1, "paused").claims
    apis.operations.pause("paused", by="ann")
    assert not worker.take(1, "paused", settle=[settlement(claim, Action.RELEASE)]).claims
    assert apis.where(raw_id) == ["ready:paused"]


def test_resume_notifies_and_the_jobs_are_claimed_in_their_order(apis: ShardApis) -> None:
    first, second = apis.add(queue="paused"), apis.add(queue="paused")
    apis.operations.pause("paused", by="ann")
    apis.notifications(apis.keys.notify("paused"))
    assert apis.operations.resume("paused")
    assert apis.notifications(apis.keys.notify("paused")) == [1]
    assert ids(apis.worker().take(5, "paused").claims) == [first, second]


def test_resume_of_an_empty_queue_notifies_nobody(apis: ShardApis) -> None:
    apis.operations.pause("empty", by="ann")
    assert apis.operations.resume("empty")
    assert apis.notifications(apis.keys.notify("empty")) == [0]


def test_the_first_person_who_paused_is_shown_until_it_is_resumed(apis: ShardApis) -> None:
    apis.add(queue="mail")
    assert apis.operations.pause("mail", by="ann é\ud800")
    apis.clock.advance(SECOND)
    assert not apis.operations.pause("mail", by="bob")
    pause = apis.store.dashboard(0).snapshot().queues["mail"].paused
    assert pause is not None
    assert (pause.by, pause.at_us) == ("ann é?", START)
    assert apis.operations.resume("mail")
    assert not apis.operations.resume("mail")
    assert apis.store.dashboard(0).snapshot().queues["mail"].paused is None


def test_a_pause_can_be_set_before_the_first_job_and_by_a_name_of_any_length(apis: ShardApis) -> None:
    assert apis.operations.pause("later", by="x" * 10_000)
    apis.add(queue="later")
    pause = apis.store.dashboard(0).snapshot().queues["later"].paused
    assert pause is not None
    assert pause.by == "x" * 200
    assert not apis.worker().take(1, "later").claims


def paused(apis: ShardApis) -> Pause | None:
    """Return the pause of the queue `mail`."""
    return apis.store.dashboard(0).snapshot().queues["mail"].paused


def test_a_pause_with_an_end_is_ended_by_promote_to_the_microsecond(apis: ShardApis) -> None:
    raw_id = apis.add(queue="mail")
    assert apis.operations.pause("mail", by="ann", until_us=START + HOUR)
    assert paused(apis) == Pause(by="ann", at_us=START, until_us=START + HOUR)
    apis.clock.advance(HOUR - 1)
    promoted = apis.promote()
    assert promoted.sleep_us == 1
    assert promoted.queues == ["mail"]
    assert not apis.worker().take(1, "mail").claims
    apis.notifications(apis.keys.notify("mail"))
    apis.clock.advance(1)
    assert apis.promote(*promoted.queues).sleep_us > SECOND
    assert apis.notifications(apis.keys.notify("mail")) == [1]
    assert ids(apis.worker().take(1, "mail").claims) == [raw_id]
    assert paused(apis) is None
    assert not apis.client.exists(apis.keys("pause_ends"), apis.keys("paused"))


def test_a_dispatcher_that_starts_later_ends_the_pause(apis: ShardApis) -> None:
    apis.add(queue="mail")
    apis.operations.pause("mail", by="ann", until_us=apis.clock.now_us + SECOND)
    apis.clock.advance(HOUR)
    first = apis.promotion.promote([])
    assert (first.sleep_us, first.queues) == (0, ["mail"])
    apis.promotion.promote(first.queues)
    assert paused(apis) is None


def test_a_pause_wakes_the_dispatcher_if_it_ends_before_the_next_promotion(apis: ShardApis) -> None:
    apis.promote()
    apis.operations.pause("mail", by="ann", until_us=apis.clock.now_us + HOUR)
    assert apis.notifications(apis.keys("notify_dispatcher")) == [0]
    apis.operations.pause("mail", by="ann", until_us=apis.clock.now_us + SECOND)
    assert apis.notifications(apis.keys("notify_dispatcher")) == [1]


def test_a_second_pause_changes_the_end_and_keeps_the_name(apis: ShardApis) -> None:
    apis.add(queue="mail")
    assert apis.operations.pause("mail", by="ann")
    apis.clock.advance(SECOND)
    assert apis.operations.pause("mail", by="bob", until_us=START + HOUR)
    assert not apis.operations.pause("mail", by="bob", until_us=START + HOUR)
    assert paused(apis) == Pause(by="ann", at_us=START, until_us=START + HOUR)
    assert apis.operations.pause("mail", by="bob")
    assert paused(apis) == Pause(by="ann", at_us=START)
    assert not apis.client.exists(apis.keys("pause_ends"))


def test_resume_ends_a_pause_before_its_end(apis: ShardApis) -> None:
    apis.add(queue="mail")
    apis.operations.pause("mail", by="ann", until_us=apis.clock.now_us + HOUR)
    assert apis.operations.resume("mail")
    assert not apis.client.exists(apis.keys("pause_ends"))
    assert apis.operations.pause("mail", by="a\0ÿ7")
    assert paused(apis) == Pause(by="a\0ÿ7", at_us=START)


def test_full_memory_does_not_keep_a_pause_from_ending(own_apis: ShardApis) -> None:
    own_apis.add(queue="mail")
    own_apis.operations.pause("mail", by="ann", until_us=own_apis.clock.now_us + SECOND)
    own_apis.clock.advance(SECOND)
    own_apis.fill_memory()
    own_apis.promote("mail")
    assert paused(own_apis) is None


@pytest.mark.parametrize("by", ["ann", ""])
def test_a_quiet_worker_reads_it_with_its_reports_until_it_is_unquieted(apis: ShardApis, by: str) -> None:
    worker, reports = apis.worker(), ProcessReports(apis.shard)
    worker.take(0)
    assert not reports.report(worker.code, "worker", {}, {})
    assert apis.operations.quiet(worker.code, by=by)
    assert not apis.operations.quiet(worker.code, by=by)
    assert [reports.report(worker.code, "worker", {}, {}) for _ in range(2)] == [True, True]
    assert apis.operations.unquiet(worker.code)
    assert not reports.report(worker.code, "worker", {}, {})
    assert not apis.operations.unquiet(worker.code)


def test_an_unknown_worker_cannot_be_quieted(apis: ShardApis) -> None:
    assert not apis.operations.quiet(b"nobody..", by="ann")
    assert not apis.client.exists(apis.keys("quiet_workers"))
