"""Every door, used once: what contract tests look at the server after."""

import os
from itertools import count

from django_delayq.job.ids import shard_of
from django_delayq.job.job import State
from django_delayq.job.outcome import Action
from django_delayq.metrics import MetricsBuffer, encode_rows
from django_delayq.store.enqueue import key_digest
from django_delayq.store.notifier import Notifier
from django_delayq.store.promotion import Reclaim
from tests.shard_apis import HOUR, SECOND, Doors, OneWorker, one_more, settlement


def _key_here(doors: Doors, prefix: str) -> str:
    """Return a key that belongs to this shard: a dead letter of another's is not retried."""
    shards, index = doors.config.shards, doors.shard.index
    keys = (f"{prefix} {number}" for number in count())
    return next(key for key in keys if shard_of(key_digest("tests.sample_app.tasks.noop", key), shards) == index)


def go_through_every_door(doors: Doors) -> None:
    """Call each method of each door, and leave jobs in every place: nearly every key there is then exists."""
    worker = doors.worker()
    for _ in range(3):
        doors.add(delay=SECOND, key=os.urandom(4).hex())
        doors.add(queue="other")
    doors.clock.advance(SECOND)
    doors.promote()
    claims = worker.take(4, "default", "other", description="host/1").claims
    assert len(claims) == 4
    assert not worker.door.heartbeat([claim.lease for claim in claims])
    ends = [settlement(claim, how) for claim, how in zip(claims, Action, strict=True)]
    assert not worker.take(1, "other", settle=ends).lost
    assert len(worker.again().claims) == 1
    _lapse_through_dispatcher(doors, worker)

    raw_id = doors.add("argument", queue="moving", delay=HOUR)
    assert doors.operations.reschedule(raw_id, delay_us=2 * HOUR)
    assert doors.operations.move(raw_id, "moved")
    assert doors.inspection.find(raw_id).state is State.SCHEDULED
    assert doors.operations.reschedule(raw_id, delay_us=0)
    assert doors.operations.move(raw_id, "other")
    assert doors.operations.cancel(raw_id, token=b"a token", on_its_way=True)
    for end in ("requeue", "discard"):
        letter = doors.inspection.dead_letter(doors.add_dead(key=_key_here(doors, end), queue=end))
        assert letter is not None
        assert getattr(doors.operations, end)(letter.raw_id, died_us=letter.died_us)
    _keep_results(doors)
    for state in (State.SCHEDULED, State.READY, State.CLAIMED, State.DEAD):
        doors.inspection.page(state, queues=["other"])
    assert doors.inspection.counts().dead
    assert doors.inspection.holder(bytes(16)) is None
    for queues in ((), ("other",)):
        Notifier(doors.shard).notify(queues)
    doors.store.check_shards()
    doors.store.check_server()
    _look_and_tell(doors)

    doors.add(key="waits", delay=HOUR)
    doors.add(queue="new")
    worker = doors.worker()
    worker.take(0, "new", description="host/2")
    worker.take(1, "new", armed=True)
    doors.add(queue="newer")


def _keep_results(doors: Doors) -> None:
    """Leave one kept result of a job that is done."""
    cancelled, kept = doors.add(queue="kept", ttl=HOUR), doors.add(queue="kept", ttl=HOUR)
    assert doors.operations.cancel(cancelled)
    assert doors.inspection.find(cancelled).state is State.CANCELLED
    worker = doors.worker()
    [claim] = worker.take(1, "kept").claims
    assert not worker.settle(claim, Action.ACKNOWLEDGE, value="3").lost
    assert doors.inspection.find(kept).state is State.DONE
    assert doors.store.result_waiter(doors.shard.index).wait(kept, 1.0)


def _look_and_tell(doors: Doors) -> None:
    tally, worker, reports = MetricsBuffer(), doors.worker(), doors.store.process_reports(doors.shard)
    worker.take(0, description="host/3")
    tally.ended("done", queue="default", task="shop.remind", lag_us=1, run_us=1)
    assert doors.operations.quiet(worker.code, by="ann")
    assert reports.report(worker.code, "worker", {"name": "host:3"}, encode_rows(tally.take()))
    assert doors.operations.unquiet(worker.code)
    assert doors.operations.quiet(worker.code, by="ann")
    leaving = os.urandom(8)
    assert not reports.report(leaving, "dispatcher", {}, {})
    reports.deregister(leaving, {})
    for queue in ("default", "moved"):
        assert doors.operations.pause(queue, by="ann")
    assert doors.operations.resume("default")
    doors.store.forward_stream(doors.shard).add({"id": "an id"})
    survey = doors.store.dashboard(doors.shard.index)
    assert survey.snapshot(tasks=["shop.remind"]).dead
    assert len(survey.due_histogram([0, 1, 2], queues=["default"])) == 2


def _lapse_through_dispatcher(doors: Doors, worker: OneWorker) -> None:
    for _ in range(3):
        doors.add(queue="lapsing")
    assert len(worker.take(3, "lapsing").claims) == 3
    items = doors.promotion.read_expired_leases(doors.lapsed())
    dead = Reclaim(lease=items[0].lease, attempts=one_more(items[0].attempts), queue=None)
    back = [Reclaim(lease=i.lease, attempts=one_more(i.attempts), queue=i.queue, delay_us=HOUR) for i in items[1:3]]
    last = Reclaim(lease=items[3].lease, attempts=one_more(items[3].attempts, suspect=True), queue=items[3].queue)
    assert sum(doors.promotion.reclaim([dead, *back, last])) == len(items) == 4
