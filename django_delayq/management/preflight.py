"""Preflight: whether the jobs that have not ended fit the tasks of this code.

For use before a deploy, with the code that is to be deployed. It runs nothing and changes nothing.
"""

from collections import Counter
from dataclasses import dataclass, field

from django_delayq.exceptions import BadBody
from django_delayq.job.codec import decode, decode_head
from django_delayq.job.ids import to_text
from django_delayq.job.outcome import OutcomeKind, kind_of_fault
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from django_delayq.store.store import Store
from django_delayq.task import registry

#: Ids that are listed for each incompatibility.
_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One reason why jobs of one task would not run."""

    #: The outcome that an attempt would have.
    ending: OutcomeKind
    #: Empty if the body is unreadable.
    task: str


@dataclass(slots=True)
class Preflight:
    """The number of jobs, and the incompatible ones among them."""

    jobs: int = 0
    #: Number of jobs, and ids of some of them.
    incompatible: Counter[Incompatibility] = field(default_factory=Counter)
    examples: dict[Incompatibility, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store) -> "Preflight":
        """Check every job of every shard, in batches. O(n), about 100,000 jobs a second."""
        preflight = cls()
        for shard in store.shards:
            for raw_id, body in ConsistencyCheck(shard).bodies():
                preflight.jobs += 1
                if reason := _incompatibility(store, raw_id, body, shard.index):
                    preflight.incompatible[reason] += 1
                    examples = preflight.examples.setdefault(reason, [])
                    if len(examples) < _EXAMPLES:
                        examples.append(to_text(raw_id, shard.index))
        return preflight


def _incompatibility(store: Store, raw_id: bytes, body: bytes, shard: int) -> Incompatibility | None:
    try:
        store.signer.verify(raw_id, body)
        job = decode(body, raw_id=raw_id, shard=shard)
    except BadBody as error:
        return Incompatibility(kind_of_fault(error), _task_of(body))
    task = registry.find(job.task)
    if task is None:
        return Incompatibility(OutcomeKind.UNKNOWN_TASK, job.task)
    try:
        task.check_fit(job.args, job.kwargs)
    except TypeError:
        return Incompatibility(OutcomeKind.ARGUMENTS_MISMATCH, job.task)
    return None


def _task_of(body: bytes) -> str:
    try:
        return decode_head(body).task
    except BadBody:
        return ""
