"""Redis state: all keys as they are, and as the model expects them. Notifications are checked separately."""

from collections import defaultdict
from functools import cache
from typing import Any
from urllib.parse import unquote

from redis import Redis

from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.job import DEFAULT_QUEUE
from django_delayq.job.result import Result
from django_delayq.job.security.encryption import Cipher
from django_delayq.job.security.error_group_record import GROUP_SIZE, error_group_of
from django_delayq.store.digests import queue_hash, tenant_digest
from django_delayq.store.keys import CATALOGUE, Keys, encode_queue
from django_delayq.store.records import ResultRecord
from tests.stateful.model.limits import PAUSED_ID, TASK, entry_of
from tests.stateful.model.model import Model
from tests.stateful.model.schedules import record_of
from tests.stateful.model.values import ModelJob, Place

#: Notifications: the invariants check what they must announce, not what is in them.
HINTS = ("notify", "notify_dispatcher", "notify_worker")
NO_CIPHER = Cipher(on=False)
#: What a TTL ends.
EXPIRING = ("results", "notify_worker")


#: All keys in one call: redis-py takes a fifth of the machine's time to send two commands for each key.
READ = """
local commands = {
    zset = {'ZRANGE', 0, -1, 'WITHSCORES'}, hash = {'HGETALL'}, set = {'SMEMBERS'}, string = {'GET'},
    list = {'LRANGE', 0, 0},
}
local found = {}
for _, name in ipairs(redis.call('KEYS', '*')) do
    local kind = redis.call('TYPE', name).ok
    local command = commands[kind]
    local value = redis.call(command[1], name, unpack(command, 2))
    local length = kind == 'list' and redis.call('LLEN', name) or 0
    table.insert(found, {name, kind, redis.call('PTTL', name), value, length})
end
return found
"""


def read(client: Redis, keys: Keys) -> dict[str, Any]:
    """Return every key with its value; each has the type in the catalogue, and only those that expire have a TTL."""
    found: dict[str, Any] = {}
    for raw_name, kind, ttl, value, length in client.eval(READ, 0):
        name = raw_name.decode()
        noun = noun_of(name, keys)
        assert noun in CATALOGUE, f"{name} is not in the catalogue"
        assert kind.decode() == CATALOGUE[noun][0], f"{name} is a {kind}"
        assert (ttl == -1) == (noun not in EXPIRING), f"{name} has the TTL {ttl}"
        match kind:
            case b"list":
                found[name] = value[0] if noun == "results" else length
            case b"zset":
                found[name] = dict(zip(value[::2], map(float, value[1::2]), strict=True))
            case b"hash":
                found[name] = dict(zip(value[::2], value[1::2], strict=True))
            case b"set":
                found[name] = set(value)
            case _:
                found[name] = value
    return found


@cache
def noun_of(name: str, keys: Keys) -> str:
    """Return the noun of a key, which must be named as `Keys` names it."""
    noun, _, queue = name.removeprefix(keys("")).partition(":")
    if queue and noun == "results":
        assert name == keys.results(bytes.fromhex(queue)), f"{name} is not what Keys would build"
    elif queue and noun == "notify_worker":
        assert name == keys.notify_worker(bytes.fromhex(queue)), f"{name} is not what Keys would build"
    elif queue:
        assert name == getattr(keys, noun)(unquote(queue)), f"{name} is not what Keys would build"
    return noun


def plain(picture: dict[str, Any], keys: Keys) -> dict[str, Any]:
    """Return the part of a state that the model predicts to the byte."""
    # The invariants compare the records of error groups, which outlive their dead letters.
    left_out = (*HINTS, "error_groups")
    expected = {name: value for name, value in picture.items() if noun_of(name, keys) not in left_out}
    if keys("exchanges") in expected:
        # Repeated exchanges check the recorded replies.
        exchanges = expected[keys("exchanges")]
        expected[keys("exchanges")] = {worker: int.from_bytes(kept[:8]) for worker, kept in exchanges.items()}
    for name in expected:
        if noun_of(name, keys) == "results":
            kept = ResultRecord.unpack(expected[name])
            result = Result.unpack(kept.ending)
            expected[name] = kept.attempts, kept.body, str(result and result.state)
    return expected


def extras_of(job: ModelJob) -> bytes:
    """Return the extras record of a job, empty without a key."""
    flags, schedule, digest, first_call, limits, tenant = 0, b"", b"", b"", b"", b""
    if job.schedule is not None:
        flags, schedule = 64 + 128 * job.has_begun, job.schedule + job.version.to_bytes(4)
    if job.digest is not None:
        flags, digest = 1 + 2 * job.until_start, job.digest
    if job.throttle is not None:
        flags, digest = 8, job.throttle
    if job.first_call is not None:
        flags, first_call = flags + 4, job.first_call.to_bytes(8)
    if job.tenant is not None:
        flags, tenant = flags + 16, bytes((job.weight,)) + job.tenant
    if job.limits:
        flags, limits = flags + 32, b"".join(limit + cost.to_bytes(2) for limit, cost in job.limits)
        limits += bytes((len(job.limits) + 128 * job.drops,))
    return bytes((flags,)) + schedule + digest + first_call + limits + tenant if flags else b""


def add_tenants(expected: dict[str, Any], model: Model, keys: Keys) -> None:
    """Add what Redis holds of tenants; the layout is in `_turns.lua`."""
    for job in model.jobs.values():
        if not job.waits or job.tenant_name is None and not job.weight and not job.is_late:
            continue
        tenant = queue_hash(job.queue) + (tenant_digest(None) if job.tenant is None else job.tenant)
        entry = b"\2" + tenant + job.member
        if job.place is Place.READY:
            weight = job.weight or int(job.is_late)
            flow, time = tenant + job.member[12:13], (job.score % 2**45).to_bytes(6)
            entry = (b"\0" if weight else b"\1") + flow + time + job.raw_id + job.member[13:] + bytes((weight,))
        expected[keys("tenant_jobs")][entry] = 0
    for state, flows in ((b"\0", model.turns.active), (b"\1", model.turns.idle)):
        for flow, tag in flows.items():
            queue, priority = queue_hash(flow.queue), bytes((flow.priority,))
            expected[keys("turns")][state + queue + priority + tag.to_bytes(7) + flow.tenant] = 0
            expected[keys("tenants")][queue + flow.tenant + priority] = state + tag.to_bytes(7)
    for (queue_name, number), time_served in model.turns.times.items():
        expected[keys("tenants")][queue_hash(queue_name) + bytes((number,))] = time_served.to_bytes(7)
    for (queue_name, digest), (at, name) in model.turns.paused.items():
        expected[keys("tenants")][queue_hash(queue_name) + digest] = b"%d ann\xff%s" % (at, name.encode())


def add_limits(expected: dict[str, Any], model: Model, keys: Keys) -> None:
    """Add what Redis holds of limits; the layout is in `_limits.lua`."""
    limits, entries = model.limits, list[bytes]()
    for raw_id, job in model.jobs.items():
        if job.waiting_for:
            expected[keys("waiting_for")][raw_id] = job.waiting_for
            entries.append(entry_of(job, job.waiting_for, b"\0") + encode_queue(job.queue).encode())
        if job.let_in:
            entries.append(entry_of(job, job.let_in, b"\1"))
        if job.held is not None:
            expected[keys("claim_limits")][raw_id] = b"".join(limit + cost.to_bytes(2) for limit, cost in job.held)
            entries += [b"\2" + limit + job.lease for limit, _ in job.held]
    entries += [b"\2" + limit + lease for limit, lease in limits.holders]
    expected[keys("limit_jobs")] = dict.fromkeys(entries, 0)
    expected[keys("outside_slots")] = {limit + lease: ends for (limit, lease), ends in limits.holders.items()}
    expected[keys("limit_rules")] = {digest: rule.pack() for digest, rule in limits.rules.items()}
    expected[keys("limit_times")] = limits.times | {b"\1" + limit: until for limit, until in limits.back_offs.items()}
    expected[keys("next_let_in")] = limits.open
    expected[keys("limit_turns")] = {
        limit: b"".join(sorted(queue_hash(queue) + tenant for queue, tenant in turns.items()))
        for limit, turns in limits.turns.items()
    }
    if limits.paused_us is not None:
        expected[keys("paused_tasks")] = {PAUSED_ID: b"%d ann\xff%s" % (limits.paused_us, TASK.encode())}


def add_schedules(expected: dict[str, Any], model: Model, keys: Keys) -> None:
    """Add what Redis holds of recurring schedules."""
    expected[keys("schedules")] = {id: record_of(each) for id, each in model.schedules.items()}
    expected[keys("next_planting")] = {
        id: each.next_us for id, each in model.schedules.items() if each.next_us is not None
    }
    expected[keys("declared_by")] = model.declared_by + b"".join(model.declared)


def group_of(job: ModelJob) -> bytes:
    """Return the error group of a dead letter, and its label."""
    return error_group_of(TASK, AttemptHistory.unpack(job.record), NO_CIPHER)


def expected_state(model: Model, keys: Keys) -> dict[str, Any]:
    """Return what `plain` must return."""
    expected: dict[str, Any] = defaultdict(dict)
    for raw_id, job in model.jobs.items():
        extra = extras_of(job)
        if job.place is Place.DEAD:
            expected[keys("dead_letters")][raw_id] = job.score
            sizes = len(job.record).to_bytes(4) + len(extra).to_bytes(4)
            expected[keys("dead_bodies")][raw_id] = sizes + job.member + job.record + extra + job.body
            group = group_of(job)[:GROUP_SIZE]
            expected[keys("groups_of_dead")][raw_id] = group
            expected[keys("dead_by_group")][group + job.score.to_bytes(8) + raw_id] = 0
            continue
        expected[keys("jobs")][raw_id] = job.body
        if job.record:
            expected[keys("attempts")][raw_id] = job.record
        if extra:
            expected[keys("job_extras")][raw_id] = extra
        if job.digest and job.holds_key:
            assert job.digest not in expected[keys("unique_keys")], "two jobs hold a key"
            expected[keys("unique_keys")][job.digest] = job.member
        if job.place is Place.CLAIMED:
            expected[keys("leases")][job.lease] = job.score
            flags = bytes(((job.stop_by is not None) + 2 * (job.ahead_us is not None) + 4 * job.has_paid,))
            run = job.token + job.claimed_us.to_bytes(8) + job.rank.to_bytes(8) + flags
            moments = b"".join(us.to_bytes(8) for us in (job.stop_by, job.ahead_us) if us is not None)
            expected[keys("claim_records")][raw_id] = run + moments + job.progress
            if job.unconfirmed:
                expected[keys("unconfirmed")] = {*expected[keys("unconfirmed")], job.lease}
        else:
            expected[getattr(keys, job.place.value)(job.queue)][job.member] = job.score
    if dead := expected.get(keys("dead_bodies")):
        expected[keys("dead_bytes")] = str(sum(map(len, dead.values()))).encode()
    for raw_id, kept in model.results.items():
        expected[keys.results(raw_id)] = kept
    expected[keys("enqueued")] = {_names(*pair): b"%d" % count for pair, count in model.enqueued.items()}
    expected[keys("queues")] = {encode_queue(queue).encode(): used for queue, used in model.queues.items()}
    expected[keys("queues_version")] = model.reply_version
    for job in model.at(Place.SCHEDULED):
        first = expected[keys("next_due")].get(queue := encode_queue(job.queue).encode(), job.score)
        expected[keys("next_due")][queue] = min(first, job.score)
    expected[keys("cancelled")], expected[keys("withdrawn")] = model.cancelled, model.withdrawn
    expected[keys("workers")] = model.workers
    expected[keys("dispatchers")] = model.dispatchers
    expected[keys("paused")] = {
        keys.ready(queue).encode(): b"%d ann" % at + (b"" if until is None else b"\xff%d" % until)
        for queue, (at, until) in model.paused.items()
    }
    expected[keys("pause_ends")] = {
        encode_queue(queue).encode(): until for queue, (_, until) in model.paused.items() if until is not None
    }
    expected[keys("spreads")] = {
        name: b"".join(number.to_bytes(8) for number in spread) for name, spread in model.spreads.items()
    }
    expected[keys("throttles")] = {digest: first for digest, (first, _) in model.windows.items()}
    expected[keys("throttle_ends")] = {digest: ends for digest, (_, ends) in model.windows.items()}
    expected[keys("exchanges")] = {worker: number for worker, (number, *_) in model.exchanges.items()}
    expected[keys("worker_names")] = dict.fromkeys(model.described, b"driven")
    add_tenants(expected, model, keys)
    add_limits(expected, model, keys)
    add_schedules(expected, model, keys)
    if model.next_promotion is not None:
        expected[keys("next_promotion")] = str(model.next_promotion).encode()
    if model.no_reclaim_before:
        expected[keys("no_reclaim_before")] = str(model.no_reclaim_before).encode()
    return {name: value for name, value in expected.items() if value}


def _names(queue: str, task: str) -> bytes:
    """Return a queue and a task as a body names them, which leaves out the name of the default queue."""
    front = b"" if queue == DEFAULT_QUEUE else queue.encode()
    return bytes((len(front),)) + front + len(task).to_bytes(2) + task.encode()
