"""Recurring schedules in any state, as scripts would store them."""

from typing import Any

from django_delayq.dispatcher.planter import Planter
from django_delayq.job.job import Job
from django_delayq.recurring.run import RunOutcome
from django_delayq.recurring.schedule import make_schedule
from django_delayq.store.records import _HAS_RUNNING, _NO_JOB, _SCHEDULE_HEAD, ScheduleRecord
from django_delayq.store.schedules.definition import Definition
from django_delayq.store.schedules.schedules import Schedules
from django_delayq.store.schedules.stored_schedule import StoredSchedule, from_text_id
from tests.admin.jobs import NOOP
from tests.shard_apis import SECOND, ShardApis


def add_schedule(
    apis: ShardApis,
    name: str = "morning",
    *,
    task: str = NOOP,
    args: Any = (),
    kwargs: dict[str, Any] | None = None,
    queue: str = "default",
    job: dict[str, Any] | None = None,
    record: dict[str, Any] | None = None,
    **options: Any,
) -> str:
    """Store a schedule, by default due each hour, and return its id as text.

    `job` has further fields of its jobs, `record` other fields of its record; `options` are those of `make_schedule`.
    """
    if "every" not in options and "cron" not in options:
        options["every"] = 3_600
    fields: dict[str, Any] = {"args": list(args), "kwargs": kwargs or {}, **(job or {})}
    template = Job(raw_id=b"", shard=apis.shard.index, task=task, queue=queue, **fields)
    schedule = make_schedule(name, now_us=apis.clock.now_us, **options)
    definition = Definition(schedule, template)
    schedules_of(apis).set_schedules([definition])
    if record:
        change_record(apis, definition.id, **record)
    return f"{definition.id.hex()}-{apis.shard.index}"


def schedules_of(apis: ShardApis) -> Schedules:
    """Return the API of the shard's schedules."""
    return apis.store.schedules(apis.shard.index)


def stored(apis: ShardApis, text_id: str) -> StoredSchedule | None:
    """Return a schedule as it is stored; None if it was deleted."""
    id, _ = from_text_id(text_id) or (b"", 0)
    return schedules_of(apis).find([id])[0]


def change_record(apis: ShardApis, id: bytes, **changes: Any) -> None:
    """Give a schedule's record other fields; `outcomes` are (outcome, ms), the latest first."""
    key = apis.keys("schedules")
    read = ScheduleRecord.unpack(apis.client.hget(key, id))
    assert read is not None
    if "outcomes" in changes:
        changes["outcomes"] = b"".join(bytes((outcome,)) + _pack_ms(ms) for outcome, ms in changes["outcomes"])
    record = read._replace(**changes)
    running = record.running if record.running != _NO_JOB else b""
    head = _SCHEDULE_HEAD.pack(
        record.flags + (_HAS_RUNNING if running else 0),
        record.overlap,
        record.pause_after,
        record.failures,
        record.version,
        _seconds(record.occurrence_us),
        record.planted,
        _seconds(record.last_start_us),
        _seconds(record.last_end_us),
        len(record.outcomes) // 3,
    )
    apis.client.hset(key, id, head + running + record.outcomes + record.definition)


def plant(apis: ShardApis) -> int:
    """Plant what is to be planted now, as a dispatcher does; return how many jobs there are."""
    planted = 0
    while due := apis.promote().schedules:
        planted += Planter(apis.shard).plant(due, now_us=apis.clock.now_us)
    return planted


def rewrite(apis: ShardApis, text_id: str, old: bytes, new: bytes) -> None:
    """Replace bytes of what is stored of a schedule."""
    id, _ = from_text_id(text_id) or (b"", 0)
    key = apis.keys("schedules")
    found = apis.client.hget(key, id)
    assert old in found
    apis.client.hset(key, id, found.replace(old, new))


def done(*ms: int) -> list[tuple[RunOutcome, int]]:
    """Return the outcomes of jobs that were done and ran so long."""
    return [(RunOutcome.DONE, each) for each in ms]


def _pack_ms(ms: int) -> bytes:
    exponent = 0
    while ms >= 2_048:
        ms, exponent = ms // 2, exponent + 1
    return (exponent * 2_048 + ms).to_bytes(2)


def _seconds(us: int) -> bytes:
    return (us // SECOND).to_bytes(5)
