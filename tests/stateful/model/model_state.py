"""State of the model: all jobs, queues and processes, and what follows from them; its transitions are in `model.py`."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from django_delayq.conf.queue_options import NO_OPTIONS, QueueOptions
from django_delayq.job.job import Flag, Job
from tests.stateful.model.turns import Turns
from tests.stateful.model.values import ModelJob, Place

SECOND_US, MINUTE_US = 1_000_000, 60_000_000


@dataclass
class ModelState:
    """All jobs, and which processes know of them. The machine sets `now`."""

    lease_us: int
    head_start_ms: int
    dead_max_count: int
    dead_max_age_us: int
    outage_us: int
    recovery_us: int
    remembered_us: int
    #: The options of a queue by its name.
    options_of: Callable[[str], QueueOptions] = lambda _: NO_OPTIONS
    now: int = 0
    jobs: dict[bytes, ModelJob] = field(default_factory=dict)
    #: Id -> attempts record, body and state of an ended job that keeps its result.
    results: dict[bytes, tuple[bytes, bytes, str]] = field(default_factory=dict)
    #: Id and token of the canceller -> when; and id -> when it was cancelled while its enqueue might still arrive.
    cancelled: dict[bytes, int] = field(default_factory=dict)
    withdrawn: dict[bytes, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    #: Queue and task -> jobs that were stored.
    enqueued: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: Queue -> when a job of it was last made ready, claimed, or held.
    queues: dict[str, int] = field(default_factory=dict)
    #: Changes when a queue appears or is removed.
    version: int | None = None
    #: Worker -> last seen; and its last exchange: number, lost leases, leases of stopped jobs, claimed leases.
    workers: dict[bytes, int] = field(default_factory=dict)
    dispatchers: dict[bytes, int] = field(default_factory=dict)
    exchanges: dict[bytes, tuple[int, frozenset[bytes], frozenset[bytes], list[bytes]]] = field(default_factory=dict)
    described: set[bytes] = field(default_factory=set)
    #: Queue -> when it was paused, and until when.
    paused: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    #: Name of an unfinished spread -> its start and length (µs), its places, those that are taken, and its callers.
    spreads: dict[bytes, tuple[int, int, int, int, int]] = field(default_factory=dict)
    #: Digest of a throttled key -> the first job, and the end of the window.
    windows: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    next_promotion: int | None = None
    no_reclaim_before: int = 0
    promoted_at: int = 0
    #: The last promotion returned the leases that had ended by then.
    expired_by: int = 0
    #: Queues of which a process was notified that has not looked since; the same for all queues and the dispatcher.
    notified: set[str] = field(default_factory=set)
    alarm_heard: bool = False
    #: Queues with recovered jobs of which a worker knows that will claim them.
    promised: set[str] = field(default_factory=set)
    notified_all: bool = False
    turns: Turns = field(default_factory=Turns)

    def holder(self, digest: bytes) -> bytes | None:
        """Return the id of the job that holds the key."""
        return next((job.raw_id for job in self.jobs.values() if job.holds_key and job.digest == digest), None)

    def leased(self, lease: bytes) -> ModelJob | None:
        """Return the job that is claimed under exactly this lease."""
        job = self.jobs.get(lease[:12])
        return job if job and job.place is Place.CLAIMED and job.lease == lease else None

    def at(self, place: Place) -> list[ModelJob]:
        """Return the jobs in one place."""
        return [job for job in self.jobs.values() if job.place is place]

    def waiting_of(self, queue: str, tenant: bytes | None) -> int:
        """Return how many jobs of a tenant wait in a queue."""
        return sum(job.waits and (job.queue, job.tenant) == (queue, tenant) for job in self.jobs.values())

    def is_served(self, job: ModelJob) -> bool:
        """Return whether workers claim it: neither its queue nor its tenant is paused."""
        return job.queue not in self.paused and (job.queue, job.tenant) not in self.turns.paused

    def _follow(self) -> None:
        """Let the turns follow the ready jobs."""
        self.turns.follow(self.at(Place.READY))

    def _leave(self, job: ModelJob) -> None:
        """Take a job out of its place; the caller puts it into another one."""
        job.place, job.is_late = Place.CLAIMED, False
        self._follow()

    def _dead(self, raw_id: bytes, died_us: int) -> ModelJob | None:
        job = self.jobs.get(raw_id)
        return job if job and job.place is Place.DEAD and job.score == died_us else None

    def rank(self, job: ModelJob, time_us: int) -> int:
        """Priority first, then time; a job delayed by its caller has a head start."""
        head_start = self.head_start_ms if job.has(Flag.DELAYED) else 0
        return job.member[12] * 2**45 + time_us // 1_000 - head_start

    def due(self, queue: str) -> list[ModelJob]:
        """Return the due jobs of a queue, oldest first."""
        due = [job for job in self.at(Place.SCHEDULED) if job.queue == queue and job.score <= self.now]
        return sorted(due, key=lambda job: (job.score, job.member))

    def pauses_ending(self, by_us: int) -> set[str]:
        """Return the queues whose pause ends by then."""
        return {queue for queue, (_, until_us) in self.paused.items() if until_us is not None and until_us <= by_us}

    def queues_to_name(self, by_us: int) -> set[str]:
        """Return the queues to pass to the next promotion: due by then, with a pause that ends, or to be removed."""
        due = {job.queue for job in self.at(Place.SCHEDULED) if job.score <= by_us + SECOND_US}
        due |= self.pauses_ending(by_us + SECOND_US)
        if min(self.queues.values(), default=self.now) > self.now - self.remembered_us - MINUTE_US:
            return due
        return due | {queue for queue, used in self.queues.items() if used <= self.now - self.remembered_us}

    @property
    def reply_version(self) -> bytes:
        """Return the version as replies contain it."""
        return b"" if self.version is None else b"%d" % self.version

    def _wait(self, job: ModelJob, due_us: int, *, revived: bool = False) -> None:
        job.due_us = max(self.now, due_us)
        job.expire_after(job.due_us, revived=revived)
        if due_us > self.now:
            job.place, job.score = Place.SCHEDULED, due_us
        else:
            job.place, job.score = Place.READY, self.rank(job, self.now)
            self._list_queue(job.queue)

    def _count_enqueued(self, job: Job) -> None:
        self.counts["enqueued"] += 1
        self.enqueued[job.queue, job.task] += 1

    def _end(self, job: ModelJob, how: str, *, keep: bool = False) -> None:
        if keep and job.has(Flag.KEEPS_RESULT):
            self.results[job.raw_id] = job.record, job.body, how
        del self.jobs[job.raw_id]
        self.counts[how] += 1

    def _list_queue(self, queue: str) -> None:
        if queue not in self.queues:
            self._change_version()
        if self.now - self.queues.get(queue, 0) >= MINUTE_US:
            self.queues[queue] = self.now

    def _use(self, queue: str) -> None:
        if queue in self.queues:
            self.queues[queue] = self.now

    def _remove_queues(self, queues: Sequence[str]) -> None:
        old = [queue for queue in queues if self.queues.get(queue, self.now) <= self.now - self.remembered_us]
        ready = {job.queue for job in self.jobs.values() if job.waits and job.place is not Place.SCHEDULED}
        for queue in old:
            if queue in ready:
                self._use(queue)
            else:
                del self.queues[queue]
        if not ready.issuperset(old):
            self._change_version()

    def _change_version(self) -> None:
        self.version = (self.now if self.version is None else self.version) + 1
