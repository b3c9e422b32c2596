"""Stop: a running job is asked to stop, and from then on it can only be done or end as cancelled."""

import pytest

from django_delayq.job.job import State
from django_delayq.job.outcome import Action, Outcome, OutcomeKind
from django_delayq.job.progress import Progress
from django_delayq.store.client.script import Script
from django_delayq.store.promotion import Reclaim
from django_delayq.worker.settlement import decide_settlement
from tests.shard_apis import DAY, SECOND, ShardApis, one_more

GRACE = 10 * SECOND


def test_the_worker_is_notified_and_its_heartbeats_say_for_how_long(apis: ShardApis) -> None:
    raw_id = apis.add()
    worker = apis.worker()
    [claim] = worker.take().claims
    assert worker.api.heartbeat([claim.lease]).stops == {}
    assert apis.operations.stop(raw_id, grace_us=GRACE)
    assert apis.notifications(apis.keys.notify_worker(worker.code)) == [1]
    apis.clock.advance(4 * SECOND)
    assert worker.api.heartbeat([claim.lease]).stops == {claim.lease: 6 * SECOND}
    apis.clock.advance(7 * SECOND)
    assert worker.api.heartbeat([claim.lease]).stops == {claim.lease: 0}


def test_the_last_stop_decides(apis: ShardApis) -> None:
    raw_id = apis.add()
    worker = apis.worker()
    [claim] = worker.take().claims
    for grace_us in (GRACE, 0, 20 * SECOND):
        assert apis.operations.stop(raw_id, grace_us=grace_us)
        assert worker.api.heartbeat([claim.lease]).stops == {claim.lease: grace_us}


def test_only_a_running_job_can_be_stopped(apis: ShardApis) -> None:
    dead, scheduled, ready = apis.add_dead(), apis.add(delay=DAY), apis.add()
    for raw_id in (scheduled, ready, dead, bytes(12)):
        assert not apis.operations.stop(raw_id, grace_us=GRACE)
    assert apis.client.keys(f"{apis.config.prefix}:*notify_worker*") == []


def test_the_claim_after_the_one_that_the_caller_saw_is_not_stopped(apis: ShardApis) -> None:
    raw_id = apis.add()
    worker = apis.worker()
    [seen] = worker.take().claims
    worker.settle(seen, Action.RELEASE)
    [claim] = worker.take().claims
    asked = apis.shard.run(
        Script("stop"), [raw_id, seen.lease[14:], GRACE], worker_notify=apis.keys.notify_worker(worker.code)
    )
    assert not asked
    assert worker.api.heartbeat([claim.lease]).stops == {}


@pytest.mark.parametrize("how", [Action.RETRY, Action.RELEASE, Action.DEAD_LETTER])
def test_no_outcome_but_success_and_stopped_is_applied(apis: ShardApis, how: Action) -> None:
    raw_id, other = apis.add(), apis.add()
    worker = apis.worker()
    claim, unharmed = worker.take(2).claims
    apis.operations.stop(raw_id, grace_us=GRACE)
    reply = worker.settle(claim, how)
    assert (reply.stopped, reply.lost) == ({claim.lease}, set())
    assert worker.again().stopped == {claim.lease}
    assert apis.where(raw_id) == ["leases"]
    assert not worker.settle(unharmed, how).stopped
    assert apis.where(other) != ["leases"]
    assert not worker.settle(claim, Action.CANCEL).lost
    assert apis.traces(raw_id) == []


def test_a_job_that_succeeds_after_all_is_done(apis: ShardApis) -> None:
    raw_id = apis.add(ttl=DAY)
    worker = apis.worker()
    [claim] = worker.take().claims
    apis.operations.stop(raw_id, grace_us=GRACE)
    assert not worker.settle(claim, Action.ACKNOWLEDGE, value="3").stopped
    assert apis.inspection.find(raw_id).state is State.DONE


def test_a_stopped_job_ends_as_cancelled_with_its_result(apis: ShardApis) -> None:
    raw_id = apis.add(ttl=DAY, key="a key")
    worker = apis.worker()
    [claim] = worker.take().claims
    apis.operations.stop(raw_id, grace_us=GRACE)
    settled = decide_settlement(claim, Outcome(kind=OutcomeKind.STOPPED), worker="host:1")
    assert not worker.take(0, settle=[settled]).lost
    found = apis.inspection.find(raw_id)
    assert found.state is State.CANCELLED
    assert found.result and (found.result.worker, found.result.started_us) != ("", None)
    assert apis.traces(raw_id) == []


def test_a_stop_survives_the_loss_of_the_worker(apis: ShardApis) -> None:
    raw_id = apis.add(ttl=DAY)
    [claim] = apis.worker().take().claims
    apis.operations.stop(raw_id, grace_us=GRACE)
    [item] = apis.promotion.read_expired_leases(apis.expired_leases())
    assert item.stops
    again = Reclaim(lease=claim.lease, attempts=one_more(item.attempts), queue="default")
    assert apis.promotion.reclaim([again]) == [False]
    assert apis.where(raw_id) == ["leases"]
    ended = Reclaim(lease=claim.lease, attempts=item.attempts, queue=None, stops=True)
    assert apis.promotion.reclaim([ended]) == [True]
    assert apis.traces(raw_id) == []


def test_a_job_that_was_not_asked_is_not_ended_as_stopped(apis: ShardApis) -> None:
    raw_id = apis.add()
    [claim] = apis.worker().take().claims
    [item] = apis.promotion.read_expired_leases(apis.expired_leases())
    ended = Reclaim(lease=claim.lease, attempts=item.attempts, queue=None, stops=True)
    assert apis.promotion.reclaim([ended]) == [False]
    assert apis.where(raw_id) == ["leases"]


def test_a_stop_and_progress_keep_each_other(apis: ShardApis) -> None:
    raw_id = apis.add()
    worker = apis.worker()
    [claim] = worker.take().claims
    worker.api.heartbeat([claim.lease], (), {claim.lease: Progress(0.25, "a quarter")})
    for grace_us in (GRACE, 2 * GRACE):
        apis.operations.stop(raw_id, grace_us=grace_us)
        assert apis.inspection.find(raw_id).progress == Progress(0.25, "a quarter")
    worker.api.heartbeat([claim.lease], (), {claim.lease: Progress(0.5)})
    found = apis.inspection.find(raw_id)
    assert found.progress == Progress(0.5)
    assert found.claim_record.stop_by_us == apis.clock.now_us + 2 * GRACE
    assert found.claimed_us == apis.clock.now_us and found.due_us is not None


def test_the_worker_of_a_job_stops_it_on_a_full_server(own_apis: ShardApis) -> None:
    apis = own_apis
    raw_id = apis.add()
    worker = apis.worker()
    [claim] = worker.take().claims
    apis.fill_memory()
    assert apis.operations.stop(raw_id, grace_us=GRACE)
    assert worker.api.heartbeat([claim.lease], (), {claim.lease: Progress(0.5)}).stops == {claim.lease: GRACE}


def test_a_quiet_worker_is_notified_and_its_heartbeats_say_so(apis: ShardApis) -> None:
    worker = apis.worker()
    worker.take(0)
    assert not worker.api.heartbeat([]).quiet
    assert apis.operations.quiet(worker.code, by="ann")
    assert apis.notifications(apis.keys.notify_worker(worker.code)) == [1]
    assert worker.api.heartbeat([]).quiet
    assert apis.operations.unquiet(worker.code)
    assert apis.notifications(apis.keys.notify_worker(worker.code)) == [1]
    assert not worker.api.heartbeat([]).quiet
