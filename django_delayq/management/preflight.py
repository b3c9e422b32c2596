"""Preflight: whether jobs that have not ended, recurring schedules and shards fit this process.

For use before a deploy, with the code, keys and settings that are to be deployed. It runs nothing.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from django_delayq.exceptions import BadBody
from django_delayq.job.body.codec import decode, try_decode_head
from django_delayq.job.ids import to_text
from django_delayq.job.job import Job
from django_delayq.job.outcome import OutcomeKind, kind_of_fault
from django_delayq.store.growth.growth import Growth
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from django_delayq.store.schedules.schedules import BATCH
from django_delayq.store.schedules.stored_schedule import StoredSchedule
from django_delayq.store.shard import Shard
from django_delayq.store.store import Store
from django_delayq.task import registry
from django_delayq.task.recurring.declarations import make_declarations

#: Reasons that are named, the most frequent first.
_REASONS = 5

#: Why a job would not run: the outcome that an attempt would have, and the task; "" if the body is unreadable.
Reason = tuple[OutcomeKind, str]


class Judgement(NamedTuple):
    """Whether one job will run."""

    id: str
    #: Why not; None if it will.
    reason: Reason | None
    #: The queue in which it waits although its expiry is over; None if it is not overdue.
    overdue_in: str | None


@dataclass(frozen=True, slots=True)
class Findings:
    """What is wrong, and what is not yet, in sentences."""

    faults: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def judge_layout(store: Store) -> Findings:
    """Compare SHARDS with the stored layout, and find what is left of an older one. A round trip a dropped shard."""
    findings, layout, setting = Findings(), store.layouts.read_any(), store.config.shards
    if layout is None:
        return findings
    if setting != layout.shards:
        text = f"SHARDS is {setting}, but the jobs are spread over {layout.shards} shards: "
        if setting in layout.past:
            findings.warnings.append(f"{text}processes follow; set it to that number with the next deploy.")
        else:
            findings.faults.append(f"{text}processes with this setting do not start; set it to that number.")
    if layout.coming:
        command = f"delayq_shards --grow {layout.coming}"
        findings.warnings.append(f"{layout.coming} shards are announced, but get no jobs yet: run {command} again.")
    if not layout.is_finished:
        older = ", ".join(map(str, layout.older))
        findings.warnings.append(
            f"Something may be left of an older number of shards ({older}): run delayq_shards --finish until it says "
            f"that nothing is."
        )
    for index in range(layout.served, max(layout.past, default=0)):
        if held := Growth(store.layouts, store.producer_shard).held(index):
            things = ", ".join(f"{name}: {number:,}" for name, number in held.items())
            findings.faults.append(
                f"Shard {index} was dropped, but something was put there afterwards ({things}): run delayq_shards "
                f"--grow {max(layout.past)}, and shrink again once they have ended."
            )
    return findings


def judge_jobs(shard: Shard, *, now_us: int) -> Iterator[Judgement]:
    """Yield the judgement of each job. `now_us` is Redis's time. O(n), about 100,000 jobs a second."""
    check = ConsistencyCheck(shard)
    # An expiry is judged before the run begins.
    running = check.running()
    for raw_id, body in check.bodies():
        job, reason = _read(shard, raw_id, body)
        overdue_in = None
        if job is not None:
            reason = _misfit(job)
            if job.expiry is not None and job.expiry.moment_us < now_us and raw_id not in running:
                overdue_in = job.queue
        yield Judgement(to_text(raw_id, shard.index), reason, overdue_in)


def _read(shard: Shard, raw_id: bytes, body: bytes) -> tuple[Job | None, Reason | None]:
    try:
        shard.signer.verify(raw_id, body)
        return decode(body, raw_id=raw_id, shard=shard.index, cipher=shard.cipher), None
    except BadBody as error:
        head = try_decode_head(body)
        return None, (kind_of_fault(error), head.task if head else "")


def _misfit(job: Job) -> Reason | None:
    task = registry.find(job.task)
    if task is None:
        return OutcomeKind.UNKNOWN_TASK, job.task
    try:
        task.check_fit(job.args, job.kwargs)
    except TypeError:
        return OutcomeKind.ARGUMENTS_MISMATCH, job.task
    return None


def judge_schedules(store: Store, shards: Sequence[Shard], *, repair: bool) -> Findings:
    """Return what is wrong with the recurring schedules of these shards, and with those that this code declares. O(n).

    With `repair`, those that were set at run time and have an older key are stored again.
    """
    judgement, reasons, outdated = Findings(), dict[bytes, str](), set[bytes]()
    for shard in shards:
        schedules = store.schedules(shard.index)
        for batch in schedules.batches(count=BATCH):
            older = [each for each in batch.schedules if _is_outdated(shard, each)]
            # A schedule that changes meanwhile may come twice.
            outdated |= {each.id for each in older}
            reasons |= {each.id: reason for each in batch.schedules if (reason := _why_unreadable(each))}
            for start in range(0, len(older) if repair else 0, BATCH):
                part = older[start : start + BATCH]
                store.schedule_places.set([each.definition for each in part if each.definition is not None])
        for text, error in make_declarations(store, shard.index).faults:
            judgement.faults.append(f"{text}: {error}" if error else text)
    for reason, count in Counter(reasons.values()).most_common(_REASONS):
        judgement.faults.append(
            f"{count:,} recurring schedules have no next job: {reason}. See delayq_schedules --state unreadable; set "
            f"them again, or give this process the keys or the release that they need."
        )
    if outdated:
        cure = "They are stored again now." if repair else "--repair stores them again."
        judgement.warnings.append(
            f"{len(outdated):,} recurring schedules have an older key than this process, or are not signed and "
            f"encrypted as it does. {cure}"
        )
    return judgement


def _is_outdated(shard: Shard, stored: StoredSchedule) -> bool:
    """Return whether this process would store it otherwise. Dispatchers store those that are declared."""
    if stored.definition is None or stored.is_declared:
        return False
    return stored.definition.pack(signer=shard.signer, cipher=shard.cipher) != stored.record.definition


def _why_unreadable(stored: StoredSchedule) -> str:
    if stored.fault is not None:
        return str(stored.fault)
    return "the dispatcher that planted last cannot read the schedule" if stored.is_unreadable else ""
