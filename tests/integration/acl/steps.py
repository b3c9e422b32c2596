"""Steps: every call of the store, made by one role on a server with a user per role."""

import os
from collections.abc import Callable
from hashlib import sha256
from time import monotonic, time
from typing import Any

from redis import Redis

from django_delayq.conf.limit_rules import LimitRule
from django_delayq.dispatcher.planter import Planter
from django_delayq.job.job import Job, LimitUse, State
from django_delayq.job.outcome import Action
from django_delayq.job.progress import Progress
from django_delayq.job.unsent import Throttle
from django_delayq.metrics import MetricsBuffer
from django_delayq.recurring.schedule import make_schedule
from django_delayq.store import forward_stream
from django_delayq.store.claims import Claims
from django_delayq.store.growth.growth import Growth
from django_delayq.store.growth.lingering import Lingering
from django_delayq.store.maintenance.acl_roles import ROLES
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from django_delayq.store.operations.batch import BatchJob
from django_delayq.store.operations.limits import SlotReply
from django_delayq.store.operations.revival import Revival
from django_delayq.store.operations.spread import Spread
from django_delayq.store.process_reports import ProcessReports
from django_delayq.store.promotion import Reclaim
from django_delayq.store.queries.endings import EndingQueries
from django_delayq.store.queries.result_waiter import wait_for_result
from django_delayq.store.queries.totals import TotalsQueries
from django_delayq.store.records import DeclaredBy, ExtrasRecord
from django_delayq.store.schedules.definition import Definition
from django_delayq.store.schedules.schedule_declarations import ScheduleDeclarations
from django_delayq.store.schedules.schedules import Schedules
from django_delayq.testing.local_redis import LocalRedisServer
from django_delayq.worker.claiming.worker_notification import WorkerNotification
from tests.servers.local_cluster import LocalCluster
from tests.shard_apis import HOUR, SECOND, ShardApis, one_without_replicas, settlement

LIMIT, RULE = LimitUse("one"), LimitRule(max_running=1)
PASSWORD = "s3cret-of-the-role"
PREFIX = "acl-test"
Step = Callable[[ShardApis, ShardApis], Any]


class RoleServer:
    """A server, or each node of a cluster, with one user per role, and the APIs of each role."""

    def __init__(self, server: LocalRedisServer | LocalCluster, **apis: Any) -> None:
        self.server = server
        self._options = {"PREFIX": PREFIX, **apis}
        self.every = ShardApis(server.url, **self._options)
        self._apis: dict[str, ShardApis] = {}
        for name in ROLES:
            self.allow(name, "")

    def allow(self, name: str, change: str) -> None:
        """Create a role's user again, with a change to its rule."""
        rule = f"reset on #{sha256(PASSWORD.encode()).hexdigest()} {ROLES[name].rule(PREFIX)} {change}"
        for client in self._clients:
            client.execute_command("ACL", "SETUSER", name, *rule.split())

    def url(self, name: str) -> str:
        return self.server.url.replace("://", f"://{name}:{PASSWORD}@")

    def apis(self, name: str) -> ShardApis:
        if name not in self._apis:
            self._apis[name] = ShardApis(self.url(name), clock=self.every.clock, **self._options)
        return self._apis[name]

    def user(self, name: str) -> Redis:
        return Redis.from_url(self.url(name), protocol=2)

    def refused(self) -> list[str]:
        """Return what the server refused since the last call, even in scripts that continued after it."""
        log = [entry for client in self._clients for entry in client.acl_log()]
        for client in self._clients:
            client.acl_log_reset()
        return [f"{entry['username']}: {entry['object']} {entry['context']}" for entry in log]

    @property
    def _clients(self) -> list[Redis]:
        is_cluster = isinstance(self.server, LocalCluster)
        return [node.client for node in self.server.nodes] if is_cluster else [self.every.client]

    def close(self) -> None:
        for apis in (self.every, *self._apis.values()):
            apis.close()


def claimed(every: ShardApis, count: int = 1) -> tuple[Any, list[Any]]:
    """Return a worker with all permissions, and its claims from a queue of their own."""
    queue = every.add().hex()
    for _ in range(count):
        every.add(queue=queue)
    worker = every.worker()
    return worker, worker.take(count, queue).claims


def dead(every: ShardApis) -> Any:
    return every.inspection.dead_letter(every.add_dead(queue="dying"))


def expired(every: ShardApis) -> Any:
    """Let a lease expire and return it."""
    claimed(every)
    # A job that a refused step left behind must be judged otherwise.
    return [item for item in every.promotion.read_expired_leases(every.expired_leases()) if not item.stops]


def enqueue(role: ShardApis, every: ShardApis) -> Any:
    role.add(key=every.add().hex(), unique=Throttle(60))
    return role.add(delay=HOUR, key=every.add().hex()) and role.add(queue=every.add().hex())


def wait_for_replicas(role: ShardApis, every: ShardApis) -> Any:
    return one_without_replicas(role)


def cancel(role: ShardApis, every: ShardApis) -> Any:
    assert role.operations.cancel(every.add(key=every.add().hex(), unique=Throttle(60)))
    return role.operations.cancel(every.add(delay=HOUR, key=every.add().hex()))


def reschedule(role: ShardApis, every: ShardApis) -> Any:
    raw_id = every.add(delay=HOUR)
    return role.operations.reschedule(raw_id, delay_us=SECOND) and role.operations.reschedule(raw_id, delay_us=0)


def move(role: ShardApis, every: ShardApis) -> Any:
    jobs = [BatchJob(raw_id=every.add(delay=HOUR)) for _ in range(2)]
    return all(effect.done for effect in role.operations.waiting_jobs.move(jobs, every.add().hex()))


def find(role: ShardApis, every: ShardApis) -> Any:
    return role.inspection.find(every.add()).state is State.READY


def ended(role: ShardApis, every: ShardApis) -> Any:
    waiting, gone = every.add(delay=HOUR), bytes(12)
    return role.inspection.ended([waiting, gone]) == {gone}


def holder(role: ShardApis, every: ShardApis) -> Any:
    return role.inspection.holder(bytes(16)) is None


def page(role: ShardApis, every: ShardApis) -> Any:
    # The row of the cursor is there.
    every.client.delete(every.keys.ready("pages"))
    raw_id = every.add(queue="pages")
    cursor = (every.ready("pages")[raw_id], every.client.zrange(every.keys.ready("pages"), 0, 0)[0])
    role.inspection.page(State.READY, queues=["pages"], cursor=cursor)
    role.inspection.page(State.READY, queues=["pages"], cursor=(1, b""))
    return [role.inspection.page(state, queues=["pages"]) for state in (State.SCHEDULED, State.CLAIMED, State.DEAD)]


def requeue(role: ShardApis, every: ShardApis) -> Any:
    letter, later = dead(every), dead(every)
    assert role.operations.requeue(letter.raw_id, died_us=letter.moment_us)
    assert role.operations.requeue(later.raw_id, died_us=later.moment_us, delay_us=HOUR)
    spread, last = Spread(name=b"acl", length_us=HOUR, left=1), dead(every)
    found = role.operations.dead_letters.requeue([BatchJob(raw_id=last.raw_id, died_us=last.moment_us)], spread=spread)
    role.operations.dead_letters.end_spread(spread)
    return found[0].done


def undo_requeue(role: ShardApis, every: ShardApis) -> Any:
    letter = dead(every)
    left_us = every.operations.requeue(letter.raw_id, died_us=letter.moment_us, delay_us=HOUR)
    return role.operations.undo_requeue(letter.raw_id, died_us=letter.moment_us, left_due_us=left_us)


def discard(role: ShardApis, every: ShardApis) -> Any:
    letter = dead(every)
    return role.operations.discard(letter.raw_id, died_us=letter.moment_us)


def promote(role: ShardApis, every: ShardApis) -> Any:
    every.add(delay=SECOND)
    every.add(key=every.add().hex(), unique=Throttle(1))
    every.clock.advance(SECOND)
    return role.promotion.promote(["default"]).moved


def read_expired(role: ShardApis, every: ShardApis) -> Any:
    _, claims = claimed(every, 2)
    [batch] = role.promotion.batches([claim.lease for claim in claims])
    return role.promotion.read_expired_leases(batch)[0].job


def reclaim(role: ShardApis, every: ShardApis) -> Any:
    back = [Reclaim(lease=item.lease, attempts=item.attempts, queue=item.queue) for item in expired(every)]
    assert all(role.promotion.reclaim(back))
    return all(
        role.promotion.reclaim([Reclaim(lease=i.lease, attempts=i.attempts, queue=None) for i in expired(every)])
    )


def settle_and_claim(role: ShardApis, every: ShardApis) -> Any:
    # An exchange reads the names of paused tasks only if there are limits or paused tasks.
    every.operations.limits.pause_task("shop.tasks.paused", by="somebody")
    queue = every.add().hex()
    for _ in range(5):
        every.add(queue=queue, key=every.add().hex())
    worker = role.worker()
    claims = worker.take(5, queue, description="host/1").claims
    assert len(worker.again().claims) == 5
    settlements = [settlement(claim, action) for claim, action in zip(claims, Action, strict=True)]
    return not worker.take(0, queue, settle=settlements).lost


def claim_one(role: ShardApis, every: ShardApis) -> Any:
    return role.worker().api.claim_one(every.add(delay=HOUR), worker_name="host/1")


def sweep(role: ShardApis, every: ShardApis) -> Any:
    claims = Claims(role.shard)
    return claims.sweep(claims.prepare(queues=("default",), want=1), all_queues=True).overdue_in_us >= 0


def heartbeat(role: ShardApis, every: ShardApis) -> Any:
    worker, claims = claimed(every)
    claims_api = Claims(role.shard, worker_id=worker.code)
    progress = {claims[0].lease: Progress(0.5)}
    return not claims_api.heartbeat([claim.lease for claim in claims], ["default"], progress).lost


def stop(role: ShardApis, every: ShardApis) -> Any:
    worker, [claim] = claimed(every)
    asked = role.operations.stop(claim.raw_id, grace_us=SECOND)
    return asked and not worker.settle(claim, Action.CANCEL).lost


def set_limits(role: ShardApis, every: ShardApis) -> Any:
    role.operations.limits.set_limits([("other", RULE)])
    return role.operations.limits.set_limits([(LIMIT.name, RULE)])


def use_limit(role: ShardApis, every: ShardApis) -> Any:
    every.operations.limits.set_limits([(LIMIT.name, RULE)])
    _, [claim] = claimed(every)
    limits, used = role.operations.limits, LimitUse(LIMIT.name, every.add().hex())
    assert limits.take_slot(used, lease=claim.lease) == (SlotReply.TAKEN, None)
    limits.back_off(used, SECOND)
    return limits.give_back_slot(used, lease=claim.lease)


def let_in(role: ShardApis, every: ShardApis) -> Any:
    every.operations.limits.set_limits([(LIMIT.name, RULE)])
    queue = every.add().hex()
    for _ in range(2):
        every.add(queue=queue, limits=[LimitUse(LIMIT.name, queue)])
    worker = every.worker()
    [claim] = worker.take(2, queue).claims
    worker.settle(claim, Action.ACKNOWLEDGE)
    promoted = every.promote()
    return role.promotion.let_in(promoted.limits_to_let_in, promoted.parked_in)


def pause_task(role: ShardApis, every: ShardApis) -> Any:
    task = every.add().hex()
    assert role.operations.limits.pause_task(task, by="ann")
    return role.operations.limits.resume_task(task)


def pause_tenant(role: ShardApis, every: ShardApis) -> Any:
    tenant = every.add().hex()
    every.add(queue="fair", tenant=tenant)
    assert role.operations.workers.pause_tenant("fair", tenant, by="ann")
    return role.operations.workers.resume_tenant("fair", tenant)


def find_tenants(role: ShardApis, every: ShardApis) -> Any:
    every.add(queue="fair", tenant="acme")
    every.operations.workers.pause_tenant("fair", "acme", by="ann")
    queries = role.store.tenants(role.shard.index)
    return queries.find("fair", "acme").paused and role.shard.read(queries.read_paused("fair"))


def find_error_groups(role: ShardApis, every: ShardApis) -> Any:
    dead(every)
    groups = role.store.error_groups(role.shard.index)
    found, *_ = groups.find_error_groups()
    return found.count == groups.times([found.digest])[0].count


def find_limits(role: ShardApis, every: ShardApis) -> Any:
    every.operations.limits.pause_task("shop.tasks.remind", by="ann")
    limits = role.store.limits(role.shard.index)
    assert limits.find_all([LIMIT.name], ["shop.tasks.remind"])[1] == [0]
    return len(list(limits.find_limits([LIMIT, LIMIT.name]))) == 2 and limits.paused_tasks()["shop.tasks.remind"]


def read_queues(role: ShardApis, every: ShardApis) -> Any:
    every.add()
    return role.shard.read_queues()


def read_served_queues(role: ShardApis, every: ShardApis) -> Any:
    every.add()
    return role.shard.read_served_queues()


def listen(role: ShardApis, every: ShardApis) -> Any:
    listener = role.shard.blocking_listener()
    listener.listen([every.keys("notify_dispatcher")], now=monotonic())
    every.client.rpush(every.keys("notify_dispatcher"), 1)
    notification = listener.read_notification()
    listener.close()
    return notification


def listen_for_stops(role: ShardApis, every: ShardApis) -> Any:
    worker, claims = claimed(every)
    notification = WorkerNotification(role.shard, lambda: worker.code)
    notification.listen()
    every.operations.quiet(worker.code, by="ann")
    arrived = notification.arrived()
    notification.close()
    return arrived


def notify(role: ShardApis, every: ShardApis) -> Any:
    every.add()
    for queues in ((), ("default",)):
        role.shard.notify(queues)
    role.shard.send_on_notification()
    return True


def check_servers(role: ShardApis, every: ShardApis) -> Any:
    role.store.check_servers()
    return True


def check_shards(role: ShardApis, every: ShardApis) -> Any:
    first = every.store.producer_shard(0)
    first.execute("SET", first.keys("shards"), 2)
    role.store.check_shards(force=True)
    first.execute("SET", first.keys("shards"), 3)
    another = every.store.producer_shard(1)
    another.execute("DEL", another.keys("schedules"))
    every.client.delete(every.keys("unique_keys"), every.keys("schedules"))
    role.store.check_shards()
    return True


def grow(role: ShardApis, every: ShardApis, more: str = "") -> None:
    """Store a layout, later than all before, by which there was one shard."""
    number = int(1_000 * time())
    for index in {0, role.shard.index, every.shard.index}:
        shard = every.store.producer_shard(index)
        shard.execute("SET", shard.keys("shards"), f"{number} 1,2@{number}{more}")


def count_left(role: ShardApis, every: ShardApis) -> Any:
    grow(role, every)
    every.add(key="k", tenant="acme")
    every.add(key="k", unique=Throttle(60))
    role.store.layouts.read()
    return Lingering(role.shard).count() is not None


def read_layout(role: ShardApis, every: ShardApis) -> Any:
    return role.store.stored_shard_count() >= 0


def move_shards(role: ShardApis, every: ShardApis) -> Any:
    """Grow and settle, but for the commands of the other steps."""
    grow(role, every, " moves")
    every.client.hset(every.keys("paused"), every.keys.ready("mail"), "1 ann")
    every.client.zadd(every.keys("pause_ends"), {"mail": 1})
    role.store.layouts.read()
    growth = Growth(role.store.layouts, role.store.producer_shard)
    growth.copy_rules()
    every.store.layouts.read()
    made = [definition(every) for _ in range(12)]
    Schedules(every.shard).set_schedules(made)
    assert growth.move_schedules() == 0
    role.store.dashboard(0).snapshot()
    role.store.producer_shard(0).read(role.store.dashboard(0).read_memory(["default"]))
    return growth.count() is not None


def revive(role: ShardApis, every: ShardApis) -> Any:
    record = ExtrasRecord(digest=os.urandom(16)).pack()
    args = [os.urandom(12) + b"d\1", "+1", b"a body", b"", record, 1]
    return Revival(role.shard).revive(queue="default", args=args, left=b"", layout=0)[0] == b"REQUEUED"


def cancel_kept(role: ShardApis, every: ShardApis) -> Any:
    return role.operations.cancel(every.add(ttl=HOUR))


def wait(role: ShardApis, every: ShardApis) -> Any:
    kept = every.add(ttl=HOUR)
    every.operations.cancel(kept)
    return wait_for_result(role.shard, kept, 1)


def dashboard(role: ShardApis, every: ShardApis) -> Any:
    every.add(delay=HOUR)
    queries = role.store.dashboard(role.shard.index)
    assert queries.due_histogram([0, 2 * every.clock.now_us], queues=["default"])["default"][0]
    assert role.shard.read(role.store.lingering(role.shard.index).read_known()).values >= 0
    assert role.shard.read(TotalsQueries(role.shard).read_totals()).enqueued
    return queries.snapshot(tasks=["t"]).queues["default"].scheduled


def server(role: ShardApis, every: ShardApis) -> Any:
    facts = next(iter(role.store.dashboard(role.shard.index).snapshot(facts=True).servers.values()), None)
    return facts and facts.version


def report(role: ShardApis, every: ShardApis) -> Any:
    reports, process_id = ProcessReports(role.shard), bytes(8)
    metrics = MetricsBuffer()
    metrics.count_attempt("done", queue="default", task="t", lag_us=1, run_us=1)
    end = (bytes(12), "t", "default", 1, "done", 1, None, None, 0, "")
    for _ in range(2):
        assert not reports.report(process_id, "worker", {}, metrics.take(), [end])
    reports.deregister(process_id, {})
    return True


def endings(role: ShardApis, every: ShardApis) -> Any:
    report(every, every)
    return role.shard.read(EndingQueries(role.shard).read_endings())


def add_to_forward_stream(role: ShardApis, every: ShardApis) -> Any:
    forward_stream.append(role.shard, {"id": "an id"})
    return every.client.xlen(every.keys("forwarded"))


def pause(role: ShardApis, every: ShardApis) -> Any:
    every.add()
    assert role.operations.pause("default", by="ann")
    return role.operations.resume("default")


def quiet(role: ShardApis, every: ShardApis) -> Any:
    worker, _ = claimed(every)
    assert role.operations.quiet(worker.code, by="ann")
    return role.operations.unquiet(worker.code)


def check_consistency(role: ShardApis, every: ShardApis) -> Any:
    """Damage each kind of place and record, and repair the damage."""
    claimed(every)
    dead(every)
    lost = [every.add(delay=HOUR, queue=f"lost {n}", key=f"{every.add().hex()}") for n in range(3)]
    every.client.delete(every.keys.scheduled("lost 0"), every.keys.notify("lost 1"))
    every.client.set(every.keys.notify("lost 1"), "x")
    every.client.hdel(every.keys("jobs"), lost[2])
    every.client.hset(every.keys("jobs"), b"orphan-12345", b"?")
    every.client.delete(every.keys("claim_records"))
    every.client.hset(every.keys("throttles"), "damaged", "x")
    check = ConsistencyCheck(role.shard)
    found = list(check.walk(repair=True))
    assert list(check.bodies())
    return found


def change_schedules(role: ShardApis, every: ShardApis) -> Any:
    kept, deleted = definition(role), definition(role)
    schedules = Schedules(role.store._producer_shards[0])
    schedules.set_schedules([kept, deleted])
    assert schedules.pause_schedule(kept.id) == b""
    assert schedules.resume_schedule(kept.id)
    return schedules.delete_schedules([deleted.id]) == [b""]


def read_schedules(role: ShardApis, every: ShardApis) -> Any:
    made = definition(role)
    Schedules(every.shard).set_schedules([made])
    schedules = Schedules(role.store._producer_shards[0])
    return schedules.count() == len(list(schedules.scan())) and schedules.find([made.id])


def plant(role: ShardApis, every: ShardApis) -> Any:
    made = definition(role)
    Schedules(every.shard).set_schedules([made])
    return Planter(role.shard).plant([made.id], now_us=role.clock.now_us)


def declare_schedules(role: ShardApis, every: ShardApis) -> Any:
    declarations, by = ScheduleDeclarations(role.shard), DeclaredBy(os.urandom(8), 1, os.urandom(16))
    made = definition(role)
    # Other steps have left a layout.
    role.store.layouts.adopt(role.store.layouts.set_layout(role.store.layout, role.shard.index))
    assert declarations.declare_schedules([made], by=by, kept=[], after=declarations.declared_by()) == []
    assert Planter(every.shard).plant([made.id], now_us=role.clock.now_us)
    assert not declarations.is_dispatcher_alive(by.process)
    [job] = declarations.declare_schedules([], by=by, kept=[], after=by) or []
    Schedules(role.shard).cancel_planted([job])
    return Schedules(every.shard).count()


def definition(apis: ShardApis) -> Definition:
    """Return a new schedule of an hour."""
    job = Job(raw_id=b"", shard=0, task="shop.tasks.remind", queue="default")
    return Definition(make_schedule(os.urandom(8).hex(), every=3_600, now_us=apis.clock.now_us), job)


STEPS: dict[str, Step] = {
    step.__name__: step
    for step in (
        *(
            enqueue,
            wait_for_replicas,
            cancel,
            cancel_kept,
            reschedule,
            stop,
            wait,
            move,
            find,
            ended,
            holder,
            page,
            requeue,
            revive,
            undo_requeue,
            discard,
            promote,
            read_expired,
            reclaim,
        ),
        *(
            settle_and_claim,
            claim_one,
            sweep,
            heartbeat,
            set_limits,
            use_limit,
            let_in,
            read_queues,
            read_served_queues,
            listen,
            listen_for_stops,
            notify,
            check_servers,
            check_shards,
            count_left,
            read_layout,
            move_shards,
            check_consistency,
        ),
        *(
            dashboard,
            server,
            report,
            endings,
            pause,
            quiet,
            pause_task,
            pause_tenant,
            find_tenants,
            find_limits,
            find_error_groups,
            add_to_forward_stream,
            *(change_schedules, read_schedules, plant, declare_schedules),
        ),
    )
}
_PRODUCER = (
    "enqueue wait_for_replicas cancel cancel_kept stop reschedule find ended holder check_shards wait "
    "change_schedules read_schedules"
)
_DISPATCHER = (
    "report promote let_in read_expired reclaim listen set_limits check_servers check_shards plant declare_schedules "
    "dashboard"
)
_VIEW = (
    "read_layout find holder page read_queues endings dashboard server find_tenants find_limits find_error_groups "
    "read_schedules"
)
OWN = {
    "producer": _PRODUCER,
    "dispatcher": _DISPATCHER,
    "worker": f"{_PRODUCER} {_DISPATCHER} settle_and_claim claim_one sweep heartbeat use_limit listen_for_stops "
    "read_served_queues notify add_to_forward_stream",
    "view": _VIEW,
    "action": f"{_VIEW} enqueue wait_for_replicas cancel cancel_kept stop reschedule move requeue revive undo_requeue "
    "discard pause quiet pause_task pause_tenant change_schedules",
    "check": "check_consistency read_queues check_servers",
    "shards": f"{_DISPATCHER} count_left move_shards",
}
#: Redis checks commands, not scripts: these steps of other roles use only commands that the role has anyway.
BORROWED = {
    "producer": "move revive undo_requeue read_served_queues plant read_layout",
    "dispatcher": "sweep enqueue cancel cancel_kept stop reschedule move find ended holder requeue revive undo_requeue "
    "discard notify heartbeat use_limit read_served_queues change_schedules read_layout settle_and_claim read_queues "
    "server find_limits find_error_groups",
    "worker": "move requeue revive undo_requeue discard find_tenants find_limits find_error_groups read_layout "
    "read_queues server",
    "view": "ended read_served_queues check_servers",
    "action": "ended let_in set_limits use_limit read_served_queues check_servers plant report",
    "check": "enqueue cancel reschedule reclaim undo_requeue move find ended holder dashboard server find_tenants "
    "find_error_groups set_limits read_served_queues change_schedules read_schedules plant read_layout count_left",
    "shards": "enqueue cancel cancel_kept stop reschedule move find ended holder requeue revive undo_requeue discard "
    "notify heartbeat use_limit read_queues read_served_queues change_schedules read_layout read_schedules "
    "find_tenants find_limits find_error_groups server sweep settle_and_claim check_consistency",
}
PAIRS = [(role, step) for role in ROLES for step in STEPS if step not in OWN[role].split()]
