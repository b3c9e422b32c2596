"""Use every API once: afterwards architecture tests examine the keys on the server."""

import os
from dataclasses import replace
from itertools import count

from django_delayq.conf.limit_rules import LimitRule
from django_delayq.dispatcher.planter import Planter
from django_delayq.job.ids import shard_of
from django_delayq.job.job import Job, LimitUse, State
from django_delayq.job.outcome import Action
from django_delayq.job.progress import Progress
from django_delayq.job.result import Result
from django_delayq.job.unsent import Throttle
from django_delayq.metrics import ALL_JOBS, MINUTE_US, MetricsBuffer
from django_delayq.recurring.schedule import make_schedule
from django_delayq.store import forward_stream
from django_delayq.store.digests import key_digest
from django_delayq.store.growth.lingering import Lingering
from django_delayq.store.growth.schedule_moves import ScheduleMoves
from django_delayq.store.operations.batch import BatchJob
from django_delayq.store.operations.limits import SlotReply
from django_delayq.store.operations.revival import Revival
from django_delayq.store.operations.spread import Spread
from django_delayq.store.process_reports import ProcessReports
from django_delayq.store.promotion import Reclaim
from django_delayq.store.queries.result_waiter import wait_for_result
from django_delayq.store.queries.totals import TotalsQueries
from django_delayq.store.records import DeclaredBy, ExtrasRecord
from django_delayq.store.schedules.definition import Definition
from django_delayq.store.schedules.schedule_declarations import ScheduleDeclarations
from django_delayq.store.schedules.schedules import Schedules
from tests.shard_apis import DAY, HOUR, SECOND, OneWorker, ShardApis, one_more, one_without_replicas, settlement


def _key_here(apis: ShardApis, prefix: str) -> str:
    """Return a unique key that belongs to this shard: a dead letter with another one is not requeued."""
    shards, index = apis.config.shards, apis.shard.index
    keys = (f"{prefix} {number}" for number in count())
    return next(key for key in keys if shard_of(key_digest("tests.sample_app.tasks.noop", key, None), shards) == index)


def exercise_all_apis(apis: ShardApis) -> None:
    """Call each method of each API and leave jobs in every place: then almost every key exists."""
    worker = apis.worker()
    for _ in range(4):
        apis.add(delay=SECOND, key=os.urandom(4).hex())
        apis.add(queue="other")
    apis.clock.advance(SECOND)
    apis.promote()
    claims = worker.take(5, "default", "other", description="host/1").claims
    assert len(claims) == 5
    assert not worker.api.heartbeat([claim.lease for claim in claims], (), {claims[0].lease: Progress(0.5)}).lost
    ends = [settlement(claim, how) for claim, how in zip(claims, Action, strict=True)]
    assert not worker.take(1, "other", settle=ends).lost
    assert len(worker.again().claims) == 1
    _expire_through_dispatcher(apis, worker)
    _stop(apis)

    one = worker.api.claim_one(apis.add(queue="single", delay=HOUR), worker_name="host/1")
    assert one
    assert not worker.settle(one, Action.ACKNOWLEDGE).lost
    raw_id = apis.add("argument", queue="moving", delay=HOUR)
    assert apis.operations.reschedule(raw_id, delay_us=2 * HOUR)
    assert apis.operations.move(raw_id, "moved")
    assert apis.inspection.find(raw_id).state is State.SCHEDULED
    assert apis.operations.reschedule(raw_id, delay_us=0)
    assert apis.operations.move(raw_id, "other")
    assert apis.operations.cancel(raw_id, token=b"a token", may_arrive=True)
    letter = apis.inspection.dead_letter(apis.add_dead(queue="spread"))
    assert letter is not None
    spread = Spread(name=b"a name", length_us=HOUR, left=2)
    job = BatchJob(raw_id=letter.raw_id, died_us=letter.moment_us)
    [requeued] = apis.operations.dead_letters.requeue([job], spread=spread)
    apis.operations.dead_letters.end_spread(replace(spread, name=b"another"))
    assert apis.operations.undo_requeue(letter.raw_id, died_us=letter.moment_us, left_due_us=requeued.due_us)
    assert apis.operations.requeue(letter.raw_id, died_us=letter.moment_us, delay_us=HOUR)
    for end in ("requeue", "discard"):
        letter = apis.inspection.dead_letter(apis.add_dead(key=_key_here(apis, end), queue=end))
        assert letter is not None
        assert getattr(apis.operations, end)(letter.raw_id, died_us=letter.moment_us)
    raw_id, record = os.urandom(12), ExtrasRecord(digest=os.urandom(16)).pack()
    letter_args = [raw_id + b"d\1", "+1", b"a body", b"", record, 1]
    revival = Revival(apis.shard)
    assert revival.revive(queue="other", args=letter_args, left=b"", layout=0)[0] == b"REQUEUED"
    _keep_results(apis)
    _serve_tenants(apis)
    _limit(apis)
    _schedule(apis)
    for state in (State.SCHEDULED, State.READY, State.CLAIMED, State.DEAD):
        apis.inspection.page(state, queues=["other"])
    assert apis.inspection.counts().dead
    assert apis.inspection.holder(bytes(16)) is None
    for queues in ((), ("other",)):
        apis.shard.notify(queues)
    apis.shard.send_on_notification()
    assert one_without_replicas(apis)
    apis.store.check_shards()
    assert Lingering(apis.shard).count() is not None
    apis.store.check_servers()
    _look_and_tell(apis)

    apis.add(key="waits", delay=HOUR)
    apis.add(key="throttled", unique=Throttle(60))
    apis.add(queue="new")
    worker = apis.worker()
    worker.take(0, "new", description="host/2")
    worker.take(1, "new", blocking=True)
    apis.add(queue="newer")


def _stop(apis: ShardApis) -> None:
    """Stop two running jobs; the worker of one has died."""
    worker, kept = apis.worker(), apis.add(queue="stopping", ttl=HOUR)
    [claim] = worker.take(1, "stopping").claims
    assert apis.operations.stop(claim.raw_id, grace_us=SECOND)
    [item] = apis.promotion.read_expired_leases([claim.lease])
    assert item.stops
    apis.expired_leases()
    ending = Result(state=State.CANCELLED, ended_us=2, started_us=1, worker="w").pack()
    stopped = Reclaim(lease=item.lease, attempts=item.attempts, queue=None, stops=True, result=ending, ttl_ms=60_000)
    assert apis.promotion.reclaim([stopped]) == [True]
    assert apis.inspection.find(kept).state is State.CANCELLED


def _serve_tenants(apis: ShardApis) -> None:
    """Leave jobs of tenants in a fair queue, one of them served."""
    for tenant in ("acme", "acme", "other", "other"):
        apis.add(tenant=tenant, queue="fair")
    worker = apis.worker()
    [claim] = worker.take(1, "fair").claims
    assert not worker.settle(claim, Action.ACKNOWLEDGE).lost
    workers = apis.operations.workers
    assert workers.pause_tenant("fair", "acme", by="ann")
    queries = apis.store.tenants(apis.shard.index)
    assert [state.name for state in apis.shard.read(queries.read_paused("fair"))] == ["acme"]
    assert workers.resume_tenant("fair", "acme")
    assert sorted(state.waiting for state in apis.shard.read(queries.read_batch("fair", b""))[0]) == [1, 2]


def _limit(apis: ShardApis) -> None:
    """Leave jobs of tenants that run under limits, and some that wait for them, and a paused task."""
    limits, one, rate = apis.operations.limits, LimitUse("one"), LimitUse("rate")
    assert limits.set_limits([("one", LimitRule(max_running=1)), ("rate", LimitRule(interval_us=HOUR))])
    for tenant in ("acme", "acme", "other", "other"):
        apis.add(tenant=tenant, queue="fair", limits=[one])
    worker = apis.worker()
    [claim] = [claim for claim in worker.take(10, "fair").claims if claim.is_limited]
    assert not worker.settle(claim, Action.ACKNOWLEDGE).lost
    assert apis.let_in() == 1
    [claim] = worker.take(1, "fair").claims
    assert limits.take_slot(rate, lease=claim.lease) == (SlotReply.TAKEN, None)
    assert limits.give_back_slot(rate, lease=claim.lease)
    assert limits.take_slot(one._replace(value="held"), lease=bytes(30), length_us=DAY) == (SlotReply.TAKEN, None)
    limits.back_off(rate, DAY)
    for task in ("shop.remind", "shop.ship"):
        assert limits.pause_task(task, by="ann")
    assert limits.resume_task("shop.ship")
    queries = apis.store.limits(apis.shard.index)
    assert list(queries.paused_tasks()) == ["shop.remind"]
    assert [state.waiting for state in queries.find_limits([one, "one", rate])] == [2, 2, 0]


def _keep_results(apis: ShardApis) -> None:
    """Leave one kept result of a successful job."""
    cancelled, kept = apis.add(queue="kept", ttl=HOUR), apis.add(queue="kept", ttl=HOUR)
    assert apis.operations.cancel(cancelled)
    assert apis.inspection.find(cancelled).state is State.CANCELLED
    worker = apis.worker()
    [claim] = worker.take(1, "kept").claims
    assert not worker.settle(claim, Action.ACKNOWLEDGE, value="3").lost
    assert apis.inspection.find(kept).state is State.DONE
    assert wait_for_result(apis.shard, kept, 1.0)


def _look_and_tell(apis: ShardApis) -> None:
    tally, worker, reports = MetricsBuffer(), apis.worker(), ProcessReports(apis.shard)
    worker.take(0, description="host/3")
    tally.count_attempt("done", queue="default", task="shop.remind", lag_us=1, run_us=1)
    assert apis.operations.quiet(worker.code, by="ann")
    end = (os.urandom(12), "shop.remind", "default", 1, "done", apis.clock.now_us, 1, 1, 0, "")
    assert reports.report(worker.code, "worker", {"name": "host:3"}, tally.take(), [end])
    assert [each.worker for each in apis.store.endings()] == ["host:3"]
    assert apis.operations.unquiet(worker.code)
    assert apis.operations.quiet(worker.code, by="ann")
    apis.clock.advance(MINUTE_US)
    tally.count_attempt("done", queue="default", task="shop.remind", lag_us=1, run_us=1)
    assert reports.report(worker.code, "worker", {"name": "host:3"}, tally.take())
    leaving = os.urandom(8)
    assert not reports.report(leaving, "dispatcher", {}, {})
    reports.deregister(leaving, {})
    for queue in ("default", "moved"):
        assert apis.operations.pause(queue, by="ann", until_us=apis.clock.now_us + DAY)
    assert apis.operations.resume("default")
    forward_stream.append(apis.shard, {"id": "an id"})
    survey, groups = apis.store.dashboard(apis.shard.index), apis.store.error_groups(apis.shard.index)
    assert sum(each.count for each in groups.find_error_groups()) == survey.snapshot().dead
    assert survey.snapshot(tasks=["shop.remind"], dimension=ALL_JOBS, week=True).dead
    assert survey.due_histogram([0, 1, 2], queues=["default"]) == {}
    assert apis.shard.read(TotalsQueries(apis.shard).read_totals()).lines
    assert apis.shard.read(apis.store.lingering(apis.shard.index).read_known()).values >= 0


def _expire_through_dispatcher(apis: ShardApis, worker: OneWorker) -> None:
    for _ in range(3):
        apis.add(queue="lapsing")
    assert len(worker.take(3, "lapsing").claims) == 3
    items = apis.promotion.read_expired_leases(apis.expired_leases())
    dead = Reclaim(lease=items[0].lease, attempts=one_more(items[0].attempts), queue=None)
    back = [Reclaim(lease=i.lease, attempts=one_more(i.attempts), queue=i.queue, delay_us=HOUR) for i in items[1:3]]
    last = Reclaim(lease=items[3].lease, attempts=one_more(items[3].attempts, suspect=True), queue=items[3].queue)
    assert sum(apis.promotion.reclaim([dead, *back, last])) == len(items) == 4


def _schedule(apis: ShardApis) -> None:
    """Set recurring schedules, plant them, and pause, resume and delete one each."""
    schedules, now_us = Schedules(apis.store._producer_shards[apis.shard.index]), apis.clock.now_us
    job = Job(raw_id=b"", shard=apis.shard.index, task="tests.sample_app.tasks.noop", queue="default")
    made = [Definition(make_schedule(name, every=60, now_us=now_us), job) for name in ("kept", "deleted")]
    assert schedules.set_schedules(made) == []
    ids = apis.promote().schedules
    assert sorted(ids) == sorted(each.id for each in made)
    assert Planter(apis.shard).plant(ids, now_us=now_us)
    while due := apis.promote().schedules:
        assert Planter(apis.shard).plant(due, now_us=now_us)
    assert len(list(schedules.scan())) == schedules.count() == len(schedules.scan_batch(count=10).schedules) == 2
    kept, deleted = (each.id for each in made)
    assert schedules.pause_schedule(kept)
    assert schedules.resume_schedule(kept)
    assert schedules.delete_schedules([deleted])[0]
    leaving, moves = Definition(make_schedule("leaving", every=60, now_us=now_us), job), ScheduleMoves(apis.shard)
    schedules.set_and_cancel([leaving])
    [stored] = schedules.find([leaving.id])
    assert stored is not None
    assert moves.hand_over_schedule(leaving.id, stored.record)[0] == b"HANDED_OVER"
    assert not moves.take_over_schedule(kept, stored.record.definition)
    schedules.set_and_cancel([made[0]])
    assert schedules.pause_and_cancel(kept)
    assert schedules.delete_and_cancel([kept]) == 1
    schedules.set_and_cancel([made[0]])
    by = DeclaredBy(os.urandom(8), now_us, os.urandom(16))
    declarations = ScheduleDeclarations(apis.shard)
    assert declarations.declare_schedules([made[1]], by=by, kept=[], after=None) == []
    assert declarations.declare_and_cancel([], by=by, kept=[], after=declarations.declared_by())
    assert not declarations.is_dispatcher_alive(by.process)
