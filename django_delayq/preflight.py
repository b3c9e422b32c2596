"""Forecast: will what waits still run? Holds every job that has not ended against the tasks this code has.

For use before a deploy, with the code that is to be deployed: nothing is run, and nothing changes.
"""

from collections import Counter
from dataclasses import dataclass, field

from django_delayq.exceptions import BadBody
from django_delayq.job.codec import decode, decode_head
from django_delayq.job.ids import to_text
from django_delayq.job.outcome import OutcomeKind, kind_of_fault
from django_delayq.store.store import Store
from django_delayq.task import registry

#: Ids told of each kind of doubt.
_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """Why jobs of one task would not run: what they would end by."""

    ending: OutcomeKind
    #: Empty where not even that can be read.
    task: str


@dataclass(slots=True)
class Preflight:
    """What became of looking at every job."""

    jobs: int = 0
    #: How many jobs each doubt is about, and ids of some.
    doubts: Counter[Incompatibility] = field(default_factory=Counter)
    examples: dict[Incompatibility, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store) -> "Preflight":
        """Look at every job of every shard; O(n), about 100,000 a second, in slices of 100."""
        forecast = cls()
        for shard in store.shards:
            for raw_id, body in store.consistency_check(shard).bodies():
                forecast.jobs += 1
                if doubt := _doubt(store, raw_id, body, shard.index):
                    forecast.doubts[doubt] += 1
                    known = forecast.examples.setdefault(doubt, [])
                    if len(known) < _EXAMPLES:
                        known.append(to_text(raw_id, shard.index))
        return forecast


def _doubt(store: Store, raw_id: bytes, body: bytes, shard: int) -> Incompatibility | None:
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
