"""ACL rules on a real server: each role does its own steps under its own user, and everything else is refused."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError, ResponseError

from django_delayq.exceptions import StoreAuthError
from django_delayq.job.job import State
from django_delayq.job.outcome import Action
from django_delayq.metrics import MetricsBuffer, encode_rows
from django_delayq.store.maintenance.acl_roles import ROLES
from django_delayq.store.promotion import Reclaim
from django_delayq.testing.local_redis import LocalRedisServer
from tests.sample_app import tasks
from tests.shard_apis import HOUR, SECOND, ShardApis, settlement
from tests.subprocesses import Processes

PASSWORD = "s3cret-of-the-role"
PREFIX = "acl-test"
Step = Callable[[ShardApis, ShardApis], Any]


class Ground:
    """A server with one user a role, and the apis of each."""

    def __init__(self, server: LocalRedisServer) -> None:
        self.server = server
        self.every = ShardApis(server.url, PREFIX=PREFIX)
        self._doors: dict[str, ShardApis] = {}
        for name in ROLES:
            self.allow(name, "")

    def allow(self, name: str, change: str) -> None:
        """Create a role's user again, with a change to its rule."""
        rule = f"reset on #{sha256(PASSWORD.encode()).hexdigest()} {ROLES[name].rule(PREFIX)} {change}"
        self.every.client.execute_command("ACL", "SETUSER", name, *rule.split())

    def url(self, name: str) -> str:
        return self.server.url.replace("redis://", f"redis://{name}:{PASSWORD}@")

    def apis(self, name: str) -> ShardApis:
        if name not in self._doors:
            self._doors[name] = ShardApis(self.url(name), PREFIX=PREFIX, clock=self.every.clock)
        return self._doors[name]

    def user(self, name: str) -> Redis:
        return Redis.from_url(self.url(name), protocol=2)

    def refused(self) -> list[str]:
        """Return what the server refused since the last call, also in scripts that continued afterwards."""
        log = self.every.client.acl_log()
        self.every.client.acl_log_reset()
        return [f"{entry['username']}: {entry['object']} {entry['context']}" for entry in log]

    def close(self) -> None:
        for apis in (self.every, *self._doors.values()):
            apis.close()


@pytest.fixture(scope="module")
def ground(server_program: Path) -> Iterator[Ground]:
    with LocalRedisServer(server=server_program, port=0) as server:
        made = Ground(server)
        yield made
        made.close()


def claimed(every: ShardApis, count: int = 1) -> tuple[Any, list[Any]]:
    """Return a worker of everybody's, and its claims on a queue of their own."""
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
    return every.promotion.read_expired_leases(every.expired_leases())


def enqueue(role: ShardApis, every: ShardApis) -> Any:
    return role.add(delay=HOUR, key=every.add().hex()) and role.add(queue=every.add().hex())


def cancel(role: ShardApis, every: ShardApis) -> Any:
    return role.operations.cancel(every.add(delay=HOUR, key=every.add().hex()))


def reschedule(role: ShardApis, every: ShardApis) -> Any:
    raw_id = every.add(delay=HOUR)
    return role.operations.reschedule(raw_id, delay_us=SECOND) and role.operations.reschedule(raw_id, delay_us=0)


def move(role: ShardApis, every: ShardApis) -> Any:
    return role.operations.move(every.add(delay=HOUR), every.add().hex())


def find(role: ShardApis, every: ShardApis) -> Any:
    return role.inspection.find(every.add()).state is State.READY


def holder(role: ShardApis, every: ShardApis) -> Any:
    return role.inspection.holder(bytes(16)) is None


def page(role: ShardApis, every: ShardApis) -> Any:
    raw_id = every.add(queue="pages")
    cursor = (every.ready("pages")[raw_id], every.client.zrange(every.keys.ready("pages"), 0, 0)[0])
    role.inspection.page(State.READY, queues=["pages"], cursor=cursor)
    role.inspection.page(State.READY, queues=["pages"], cursor=(1, b""))
    return [role.inspection.page(state, queues=["pages"]) for state in (State.SCHEDULED, State.CLAIMED, State.DEAD)]


def counts(role: ShardApis, every: ShardApis) -> Any:
    every.add()
    return role.inspection.counts().ready


def requeue(role: ShardApis, every: ShardApis) -> Any:
    letter, later = dead(every), dead(every)
    assert role.operations.requeue(letter.raw_id, died_us=letter.died_us)
    return role.operations.requeue(later.raw_id, died_us=later.died_us, delay_us=HOUR)


def discard(role: ShardApis, every: ShardApis) -> Any:
    letter = dead(every)
    return role.operations.discard(letter.raw_id, died_us=letter.died_us)


def promote(role: ShardApis, every: ShardApis) -> Any:
    every.add(delay=SECOND)
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


def exchange(role: ShardApis, every: ShardApis) -> Any:
    queue = every.add().hex()
    for _ in range(4):
        every.add(queue=queue, key=every.add().hex())
    worker = role.worker()
    claims = worker.take(4, queue, description="host/1").claims
    assert len(worker.again().claims) == 4
    ends = [settlement(claim, how) for claim, how in zip(claims, Action, strict=True)]
    return not worker.take(0, queue, settle=ends).lost


def heartbeat(role: ShardApis, every: ShardApis) -> Any:
    worker, claims = claimed(every)
    api = role.store.claims(role.shard, worker_id=worker.code)
    return not api.heartbeat([claim.lease for claim in claims])


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
    key = listener.read_notification()
    listener.close()
    return key


def notify(role: ShardApis, every: ShardApis) -> Any:
    every.add()
    for queues in ((), ("default",)):
        role.shard.notify(queues)
    return True


def check_server(role: ShardApis, every: ShardApis) -> Any:
    role.store.check_server()
    return True


def check_shards(role: ShardApis, every: ShardApis) -> Any:
    every.client.set(every.keys("shards"), 2)
    role.store.check_shards(force=True)
    every.client.set(every.keys("shards"), 3)
    every.client.delete(every.keys("unique_keys"))
    role.store.check_shards()
    return True


def cancel_kept(role: ShardApis, every: ShardApis) -> Any:
    return role.operations.cancel(every.add(ttl=HOUR))


def wait(role: ShardApis, every: ShardApis) -> Any:
    kept = every.add(ttl=HOUR)
    every.operations.cancel(kept)
    return role.store.result_waiter(role.shard.index).wait(kept, 1)


def snapshot(role: ShardApis, every: ShardApis) -> Any:
    every.add(delay=HOUR)
    look = role.store.dashboard(role.shard.index)
    assert look.due_histogram([0, 2 * every.clock.now_us], queues=["default"])[0]
    return look.snapshot(tasks=["t"]).queues["default"].scheduled


def server(role: ShardApis, every: ShardApis) -> Any:
    facts = role.store.dashboard(role.shard.index).snapshot(facts=True).server
    return facts and facts.version


def report(role: ShardApis, every: ShardApis) -> Any:
    reports, code = role.store.process_reports(role.shard), bytes(8)
    tally = MetricsBuffer()
    tally.ended("done", queue="default", task="t", lag_us=1, run_us=1)
    for _ in range(2):
        assert not reports.report(code, "worker", {}, encode_rows(tally.take()))
    reports.deregister(code, {})
    return True


def forward(role: ShardApis, every: ShardApis) -> Any:
    role.store.forward_stream(role.shard).add({"id": "an id"})
    return every.client.xlen(every.keys("forwarded"))


def pause(role: ShardApis, every: ShardApis) -> Any:
    every.add()
    assert role.operations.pause("default", by="ann")
    return role.operations.resume("default")


def quiet(role: ShardApis, every: ShardApis) -> Any:
    worker, _ = claimed(every)
    assert role.operations.quiet(worker.code, by="ann")
    return role.operations.unquiet(worker.code)


def check(role: ShardApis, every: ShardApis) -> Any:
    """Repair damage in each place and record, and check the rest."""
    claimed(every)
    dead(every)
    lost = [every.add(delay=HOUR, queue=f"lost {n}", key=f"{every.add().hex()}") for n in range(3)]
    every.client.delete(every.keys.scheduled("lost 0"), every.keys.notify("lost 1"))
    every.client.set(every.keys.notify("lost 1"), "x")
    every.client.hdel(every.keys("jobs"), lost[2])
    every.client.hset(every.keys("jobs"), b"orphan-12345", b"?")
    every.client.delete(every.keys("claim_records"))
    api = role.store.consistency_check(role.shard)
    found = list(api.walk(repair=True))
    assert list(api.bodies())
    return found


STEPS: dict[str, Step] = {
    step.__name__: step
    for step in (
        *(
            enqueue,
            cancel,
            cancel_kept,
            reschedule,
            wait,
            move,
            find,
            holder,
            page,
            counts,
            requeue,
            discard,
            promote,
            read_expired,
            reclaim,
        ),
        *(exchange, heartbeat, read_queues, read_served_queues, listen, notify, check_server, check_shards, check),
        *(snapshot, server, report, pause, quiet, forward),
    )
}
_PRODUCER = "enqueue cancel cancel_kept reschedule find check_shards wait"
_DISPATCHER = "report promote read_expired reclaim listen check_server check_shards"
_VIEW = "find holder page counts read_queues snapshot server"
OWN = {
    "producer": _PRODUCER,
    "dispatcher": _DISPATCHER,
    "worker": f"{_PRODUCER} {_DISPATCHER} exchange heartbeat read_served_queues notify forward",
    "view": _VIEW,
    "action": f"{_VIEW} cancel cancel_kept reschedule move requeue discard pause quiet",
    "check": "check read_queues check_server",
}
#: Redis checks commands, not scripts: these steps of other roles use only commands of the role.
BORROWED = {
    "producer": "move holder requeue read_served_queues",
    "dispatcher": "enqueue cancel reschedule move find holder requeue discard read_served_queues notify",
    "worker": "move holder requeue discard",
    "view": "read_served_queues check_server",
    "action": "enqueue read_served_queues check_shards check_server",
    "check": "move find holder counts discard read_served_queues",
}
PAIRS = [(role, step) for role in ROLES for step in STEPS if step not in OWN[role].split()]


@pytest.mark.parametrize("name", ROLES)
def test_a_role_does_its_own_steps_and_is_refused_nothing(name: str, ground: Ground) -> None:
    ground.refused()
    ground.every.client.script_flush()
    for step in OWN[name].split():
        assert STEPS[step](ground.apis(name), ground.every), step
    assert ground.refused() == []


@pytest.mark.parametrize(("name", "step"), PAIRS, ids=lambda part: part)
def test_a_step_of_another_role_is_refused(name: str, step: str, ground: Ground) -> None:
    if step in BORROWED[name].split():
        assert STEPS[step](ground.apis(name), ground.every)
    else:
        with pytest.raises(StoreAuthError) as refused:
            STEPS[step](ground.apis(name), ground.every)
        assert name in str(refused.value)
        assert PASSWORD not in f"{refused.value} {refused.value!r} {refused.value.__cause__!r}"


@pytest.mark.parametrize("name", ROLES)
def test_a_role_needs_each_command_that_its_doors_send(name: str, ground: Ground) -> None:
    """Commands of scripts are read from them; a declared one must not outlive its use."""
    try:
        for command in sorted(ROLES[name].plain):
            ground.allow(name, f"-{command.lower()}")
            ground.refused()
            for step in OWN[name].split():
                try:
                    STEPS[step](ground.apis(name), ground.every)
                except StoreAuthError:
                    break
            assert ground.refused(), f"{name} does without {command}"
    finally:
        ground.allow(name, "")


FORBIDDEN = [
    *("KEYS *", "SCAN 0", "FLUSHALL", "FLUSHDB", "CONFIG GET *", "CONFIG SET maxmemory 1", "CONFIG REWRITE"),
    *(
        "DEBUG SLEEP 0",
        "SCRIPT FLUSH",
        "SCRIPT KILL",
        "SCRIPT LOAD x",
        "SHUTDOWN NOSAVE",
        "REPLICAOF NO ONE",
        "MONITOR",
    ),
    *(
        "CLIENT KILL TYPE normal",
        "CLIENT PAUSE 1",
        "CLIENT LIST",
        "CLIENT NO-EVICT on",
        "SAVE",
        "BGSAVE",
        "BGREWRITEAOF",
    ),
    *("ACL LIST", "ACL SETUSER x", "ACL WHOAMI", "MODULE LIST", "PUBLISH a b", "SUBSCRIBE a", "SLOWLOG GET", "DBSIZE"),
    *("RANDOMKEY", "SWAPDB 0 1", "WAIT 0 0", "MULTI", "CLUSTER INFO", "COMMAND", "MEMORY DOCTOR", "OBJECT HELP"),
]


@pytest.mark.parametrize("command", FORBIDDEN)
def test_no_role_may_run_what_rules_the_server(command: str, ground: Ground) -> None:
    for name in ROLES:
        with ground.user(name) as user, pytest.raises(ResponseError, match="(?i)no permissions|not allowed") as refused:
            user.execute_command(*command.split())
        # A server that forbids DEBUG reports that first.
        assert isinstance(refused.value, NoPermissionError) or command.startswith("DEBUG")
        # Nor inside a script of its own.
        script = f"return redis.call({', '.join(map(repr, command.split()))})"
        with ground.user(name) as user, pytest.raises(ResponseError):
            user.execute_command("EVAL", script, 0)
    assert ground.every.client.ping()


def test_no_role_reaches_a_key_outside_its_prefix(ground: Ground) -> None:
    ground.every.client.hset("other:{0}:jobs", "x", "y")
    for name, role in ROLES.items():
        for key in ("other:{0}:jobs", PREFIX, f"x{PREFIX}:a", f"{PREFIX}-2:{{0}}:jobs"):
            calls = [call for call in role.commands if call in ("HGET", "HSET", "HDEL", "DEL", "ZADD", "ZREM")]
            assert calls
            for call in calls:
                arguments = {"HGET": ["x"], "HSET": ["x", 1], "HDEL": ["x"], "ZADD": [1, "x"], "ZREM": ["x"]}.get(
                    call, []
                )
                with ground.user(name) as user, pytest.raises(NoPermissionError):
                    user.execute_command(call, key, *arguments)
                words = ", ".join(f"'{word}'" for word in (call, key, *arguments))
                with ground.user(name) as user, pytest.raises(ResponseError):
                    user.execute_command("EVAL", f"return redis.call({words})", 0)
    assert ground.every.client.hgetall("other:{0}:jobs") == {b"x": b"y"}
    assert not ground.every.client.exists(PREFIX, f"x{PREFIX}:a", f"{PREFIX}-2:{{0}}:jobs")


WRITES = [
    *(("SET", "1"), ("HSET", "f", "1"), ("HDEL", "f"), ("ZADD", "1", "m"), ("ZREM", "m"), ("RPUSH", "1"), ("LPOP",)),
    *(("DEL",), ("UNLINK",), ("SADD", "m"), ("EXPIRE", "1"), ("HINCRBY", "f", "1"), ("RENAME", f"{PREFIX}:b")),
]


@pytest.mark.parametrize("name", ROLES)
def test_a_script_of_ones_own_writes_no_more_than_the_rule_allows(name: str, ground: Ground) -> None:
    for command, *arguments in WRITES:
        key = f"{PREFIX}:{{0}}:{name}-{command}"
        text = f"return redis.call({', '.join(map(repr, (command, key, *arguments)))})"
        with ground.user(name) as user:
            if command in ROLES[name].commands:
                user.execute_command("EVAL", text, 0)
            else:
                with pytest.raises(ResponseError):
                    user.execute_command("EVAL", text, 0)
    if name == "view":
        assert not ground.every.client.keys(f"{PREFIX}:{{0}}:view-*")


def test_a_rule_serves_another_database_and_a_client_name(ground: Ground) -> None:
    named: Any = {"url": ground.url("producer").replace("/0", "/3"), "client_name": "shop"}
    apis = ShardApis(named, PREFIX=PREFIX)
    try:
        assert apis.add()
        known = [(one["user"], one["db"], one["name"]) for one in ground.every.client.client_list()]
        assert ("producer", "3", "shop") in known
    finally:
        apis.close()


# The commands themselves


SENT = """
from tests.sample_app import tasks
tasks.chain.enqueue(2)
tasks.fail.enqueue(1)
tasks.record.after(0.2).enqueue("delayed")
tasks.record.using(key="k", queue="new", delay=0.3).enqueue("keyed")
job = tasks.record.after(900).enqueue("never")
assert job.refresh().state == "scheduled"
assert job.reschedule(delay=800) and job.cancel()
"""
CRASHES = """
from tests.sample_app import tasks
tasks.crash.after(0.1).enqueue("exit")
"""


def test_the_commands_do_a_days_work_each_under_its_own_user(ground: Ground, processes: Processes) -> None:
    """Jobs that enqueue, fail and crash; a lease that expires; a worker that starts its own dispatcher."""
    prefix = f"{PREFIX}:day"
    bodies, dead_letters = (f"{prefix}:{{0}}:{noun}" for noun in ("jobs", "dead_letters"))
    ground.refused()

    def under(name: str, command: str, *options: str) -> Any:
        # Settings of its own: each process reads them when it has got so far.
        delayq = {"REDIS": ground.url(name), "PREFIX": prefix, "LEASE": 2}
        (processes.folder / f"{name}_settings.py").write_text(f"from tests.settings import *\nDELAYQ = {delayq!r}\n")
        return processes.start(command, *options, DJANGO_SETTINGS_MODULE=f"{name}_settings")

    dispatcher, first = under("dispatcher", "run_dispatcher"), under("worker", "run_worker")
    sent = under("producer", "shell", "-c", SENT)
    assert sent.wait() == 0, sent.output
    client = ground.every.client
    # A crash would also end jobs that run beside it and are not acknowledged yet.
    processes.until(lambda: not client.hlen(bodies), what="all jobs before the crash to end")
    crash = under("producer", "shell", "-c", CRASHES)
    assert crash.wait() == 0, crash.output
    processes.until(lambda: not first.running, what="the job that ends its worker")
    second = under("worker", "run_worker", "--with-dispatcher")
    processes.until(lambda: client.zcard(dead_letters) and not client.hlen(bodies), what="all jobs to end")
    assert (dispatcher.end(), second.end()) == (0, 0)
    assert ground.refused() == []
    checked = under("check", "delayq_check", "--repair")
    assert checked.wait() == 0, checked.output
    # Then it does not know how often Redis forces its file to disk, and reports that.
    assert {entry.lower() for entry in ground.refused()} <= {"check: config|get toplevel", "check: config toplevel"}
    for command in (dispatcher, first, sent, crash, second, checked):
        assert "Traceback" not in command.output
        assert PASSWORD not in command.output
    ran = [run["args"][0] for run in processes.runs() if run.get("args")]
    assert sorted(ran) == ["delayed", "keyed"]
    assert sum("left" in run for run in processes.runs()) == 3


def test_a_worker_alone_promotes_under_its_user(ground: Ground, processes: Processes) -> None:
    processes.configure(REDIS=ground.url("worker"), PREFIX=f"{PREFIX}:alone")
    ground.refused()
    worker = processes.start("run_worker")
    tasks.record.after(0.2).enqueue("alone")
    processes.until_runs(1)
    assert worker.end() == 0
    assert ground.refused() == []


@pytest.mark.parametrize(
    ("command", "name"), [("run_worker", "producer"), ("run_worker", "view"), ("run_dispatcher", "producer")]
)
def test_a_command_under_anothers_user_says_so_and_never_the_password(
    command: str, name: str, ground: Ground, processes: Processes
) -> None:
    processes.configure(REDIS=ground.url(name), PREFIX=f"{PREFIX}:wrong")
    started = processes.start(command)
    processes.until(lambda: f"user '{name}'" in started.output, what="the refusal")
    assert "Redis refused" in started.output
    assert PASSWORD not in started.output
    assert "Traceback" not in started.output
