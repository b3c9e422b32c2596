"""Turns: the flows of fair queues in plain Python: which job comes next, and what tags and virtual times become."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from django_delayq.store.digests import tenant_digest
from tests.stateful.model.values import ModelJob

#: What a job of weight 1 costs.
SERVICE = 5040


@dataclass(frozen=True, order=True)
class Flow:
    """The ready jobs of one tenant and one priority in one queue."""

    queue: str
    priority: int
    tenant: bytes

    @property
    def clock(self) -> tuple[str, int]:
        """Flows with the same clock are served in turn."""
        return self.queue, self.priority

    @classmethod
    def of(cls, job: ModelJob) -> "Flow | None":
        """Return the flow of a ready job, None if it has no turn."""
        return cls.that_paid(job) if job.weight or job.is_late else None

    @classmethod
    def that_paid(cls, job: ModelJob) -> "Flow":
        """Return the flow that paid for the claim of a job."""
        return cls(job.queue, job.member[12], tenant_digest(None) if job.tenant is None else job.tenant)


@dataclass(frozen=True)
class Next:
    """A job in the order of its queue, and whether that is the order of turns."""

    job: ModelJob
    by_turn: bool = False


@dataclass
class Turns:
    """The tags of flows that have jobs, and of those that had some; and the virtual time of each clock."""

    active: dict[Flow, int] = field(default_factory=dict)
    idle: dict[Flow, int] = field(default_factory=dict)
    times: dict[tuple[str, int], int] = field(default_factory=dict)
    #: Queue and tenant -> when (µs) it was paused, and its name.
    paused: dict[tuple[str, bytes], tuple[int, str]] = field(default_factory=dict)

    def follow(self, ready: Iterable[ModelJob]) -> None:
        """Begin the turns of flows that have jobs, and end those of flows that have none."""
        present = {flow for job in ready if (flow := Flow.of(job)) and (flow.queue, flow.tenant) not in self.paused}
        for flow in self.active.keys() - present:
            self._end(flow, self.active.pop(flow))
        for flow in present - self.active.keys():
            self.active[flow] = max(self._time(flow), self.idle.pop(flow, 0))

    def order(self, ready: Sequence[ModelJob], most: int) -> list[Next]:
        """Return the next jobs of one fair queue by turns."""
        found = list[Next]()
        jobs: dict[Flow, list[ModelJob]] = {}
        for job in sorted(ready, key=lambda job: (job.score, job.member[:12], job.member[13])):
            if flow := Flow.of(job):
                jobs.setdefault(flow, []).append(job)
        line = sorted((flow.priority, tag, flow.tenant, flow) for flow, tag in self.active.items() if flow in jobs)
        while line and len(found) < most:
            priority, tag, tenant, flow = line.pop(0)
            job = jobs[flow].pop(0)
            found.append(Next(job, by_turn=True))
            if jobs[flow]:
                later = tag + cost(job)
                place = sum((each[0], each[1]) <= (priority, later) for each in line)
                line.insert(place, (priority, later, tenant, flow))
        return found

    def charge(self, claims: Sequence[Next], left: Iterable[ModelJob]) -> None:
        """Let the flows of these claims pay; `left` has all jobs that are ready afterwards."""
        charged: dict[Flow, int] = {}
        for each in claims:
            flow = Flow.of(each.job)
            each.job.has_paid = each.by_turn
            if flow and each.by_turn:
                begins = charged.get(flow, self.active[flow])
                charged[flow] = begins + cost(each.job)
                self.times[flow.clock] = max(self._time(flow), begins)
        busy = {Flow.of(job) for job in left}
        for flow, tag in charged.items():
            del self.active[flow]
            if flow in busy:
                self.active[flow] = tag
            else:
                self._end(flow, tag)
        clocks = {flow.clock for flow in charged}
        self.idle = {f: tag for f, tag in self.idle.items() if f.clock not in clocks or tag > self._time(f)}

    def refund(self, job: ModelJob) -> None:
        """Give back what the claim of a ready job cost its flow."""
        flow = Flow.that_paid(job)
        if job.has_paid and flow in self.active:
            self.active[flow] = max(0, self.active[flow] - cost(job))
        elif job.has_paid and flow in self.idle:
            self._end(flow, max(0, self.idle.pop(flow) - cost(job)))

    def forget(self, queue: str) -> None:
        """Drop the tags of a queue without ready jobs."""
        self.idle = {flow: tag for flow, tag in self.idle.items() if flow.queue != queue}

    def _end(self, flow: Flow, tag: int) -> None:
        if tag > self._time(flow):
            self.idle[flow] = tag

    def _time(self, flow: Flow) -> int:
        return self.times.get(flow.clock, 0)


def cost(job: ModelJob) -> int:
    """Return what the service of a job costs its flow."""
    return int(SERVICE / (job.weight or 1) + 0.5)
