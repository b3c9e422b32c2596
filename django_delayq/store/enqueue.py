"""Enqueue: accept new jobs. Called by web processes, commands and tasks."""

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import NamedTuple

from django.views.decorators.debug import sensitive_variables

from django_delayq.clock import LATEST_US, SECOND_US, estimated_us
from django_delayq.exceptions import StoreError, StoreUnavailable, TenantFull
from django_delayq.job.body.codec import encrypt, read_queue, with_due
from django_delayq.job.job import DEFAULT_QUEUE, Job
from django_delayq.job.layout import Layout, Place
from django_delayq.job.unsent import Debounce, Throttle, UnsentJob
from django_delayq.job.value import fast_dataclass
from django_delayq.store.client.script import Script
from django_delayq.store.client.script_call import ScriptCall
from django_delayq.store.digests import key_digest, limit_digest, routing_of, schedule_id, tenant_digest
from django_delayq.store.nodes.resp import Part
from django_delayq.store.records import ExtrasRecord
from django_delayq.store.shard import Shard

_ENQUEUE, _ENQUEUE_ONE = Script("enqueue"), Script("enqueue_one")
_FIND_HOLDERS, _REPLACE = Script("find_holders"), Script("replace")
#: Most jobs in one script call. With 500, into millions of scheduled jobs, Redis serves nobody else for 3 to 5 ms, and
#: the rate is the same.
BATCH = 250
#: How many times the holders of keys are read, if they change before they are replaced.
_TRIES = 10


@fast_dataclass
class EnqueueResult:
    """What happened to a batch."""

    #: Redis's time when the script ran, µs since the epoch.
    now_us: int
    #: Per job: its due time, µs since the epoch.
    due_us: list[int]
    #: Position in the batch -> id of the job that holds its unique key, or throttles it; it was not stored itself.
    held: dict[int, bytes]
    #: Those of them whose arguments, options and time the holder got.
    replaced: frozenset[int] = frozenset()
    #: Position in the batch -> the job as it was stored, if a later one with the same key gave it its arguments.
    stored: dict[int, Job] = field(default_factory=dict)
    #: Positions of the jobs to send on: they belong to another shard, and nothing of their routing values is left here.
    to_send_on: frozenset[int] = frozenset()


class Holder(NamedTuple):
    """The job that holds a unique key."""

    member: bytes
    queue: str

    @property
    def raw_id(self) -> bytes:
        """The id of the job."""
        return self.member[:12]


class Enqueue:
    """API of one shard for new jobs."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._head_start = shard.config.dispatcher.due_first_us // 1_000

    def enqueue(self, unsent: Sequence[UnsentJob]) -> EnqueueResult:
        """Store up to 250 jobs in one atomic round trip. See `EnqueueCall`."""
        return self.prepare(unsent).result()

    # Also for what it calls: Django looks for the decorator in all frames above.
    @sensitive_variables()
    def prepare(
        self, unsent: Sequence[UnsentJob], *, left: Sequence[bytes] = (), layout: int = 0
    ) -> "EnqueueCall | ReplaceCall":
        """Return the call that stores up to 250 jobs, not sent yet. Either all of them replace others, or none does.

        `left`: for each job what `Place.left_here()` returns: b"", or it is stored only while something of its routing
        value is left here. `layout`: the number of the layout by which these jobs belong here; if the shard knows
        another one, the reply raises `OtherLayout`. 0: it does not matter, as for jobs without a routing value.
        """
        now = self._shard.clock.steady()
        each_remaining_us = [_remaining_us(item, now) for item in unsent]
        if unsent[0].replaces:
            return ReplaceCall(self, unsent, each_remaining_us, left=left, layout=layout)
        if len(unsent) == 1 and not unsent[0].job.has_extras:
            call = self.enqueue_one(unsent[0], each_remaining_us[0])
        else:
            call = self._prepare_batch(unsent, each_remaining_us, left=left, layout=layout)
        return EnqueueCall(call, unsent, each_remaining_us)

    def enqueue_one(self, item: UnsentJob, remaining_us: int | None) -> ScriptCall:
        """Return the call that stores one job without a unique key, not sent yet. `prepare()` chooses it."""
        job = item.job
        args = [self._head_start, job.member, *self.due_and_body(item, remaining_us)]
        return self._shard.call(_ENQUEUE_ONE, args, queue=job.queue)

    def _prepare_batch(
        self,
        unsent: Sequence[UnsentJob],
        each_remaining_us: Sequence[int | None],
        *,
        left: Sequence[bytes],
        layout: int,
    ) -> ScriptCall:
        numbers = _numbered(item.job.queue for item in unsent)
        more_keys = [key for queue in numbers for key in self._shard.keys.of_queue(queue)]
        args: list[Part] = [self._head_start, ""]
        for number, (item, remaining_us) in enumerate(zip(unsent, each_remaining_us, strict=True)):
            job = item.job
            args += (job.member, numbers[job.queue], *self.due_and_body(item, remaining_us))
            if job.has_extras:
                args += (self.extras(item).pack(), _how_unique(item), self._most_waiting(job))
                args.append(left[number] if left else b"")
                # A job without a routing value has none that matters; to send it again would be right all the same.
                args[1] = layout or ""
        return self._shard.call(_ENQUEUE, args, more_keys=more_keys)

    def find_holders(self, digests: Sequence[bytes]) -> list[Holder | None]:
        """Return the holder of each unique key, up to 250. One round trip."""
        _, *found = self._shard.run(_FIND_HOLDERS, digests)
        holders: list[Holder | None] = []
        for member, body in zip(found[::2], found[1::2], strict=True):
            holders.append(Holder(member, _queue_of(body)) if member else None)
        return holders

    def replace(
        self,
        unsent: Sequence[UnsentJob],
        each_remaining_us: Sequence[int | None],
        holders: Sequence[Holder | None],
        *,
        left: Sequence[bytes] = (),
        layout: int = 0,
    ) -> tuple[int, list[bytes]]:
        """Store each job, or give its arguments, options and time to the waiting job that holds its key. Atomic.

        Returns Redis's time (µs since the epoch), and per job STORED, REPLACED, KEPT or GO_ON; ELSEWHERE alone if a
        holder is not where it was read: then nothing was done. No two jobs may have the same key. A repeated call
        replaces again.
        """
        numbers = _numbered([*(item.job.queue for item in unsent), *(holder.queue for holder in holders if holder)])
        args: list[Part] = [self._head_start, layout or ""]
        jobs = zip(unsent, each_remaining_us, holders, strict=True)
        for number, (item, remaining_us, holder) in enumerate(jobs):
            job = item.job
            signed = item if holder is None else replace(item, job=replace(job, raw_id=holder.raw_id))
            args += (numbers[job.queue], job.member, *self.due_and_body(signed, remaining_us))
            args.append(self.extras(item).pack())
            args += (holder.member, numbers[holder.queue]) if holder else (b"", 0)
            args.append(item.unique.max_wait_us if isinstance(item.unique, Debounce) else "")
            args += (self._most_waiting(job), left[number] if left else b"")
        keys = self._shard.keys
        more_keys = [key for queue in numbers for key in keys.named(queue).values()]
        now_us, *words = self._shard.run(_REPLACE, args, more_keys=more_keys)
        return now_us, words

    def _most_waiting(self, job: Job) -> Part:
        """Return how many jobs of the job's tenant may wait in its queue; "" for any number."""
        most = None if job.tenant is None else self._shard.config.tasks.options_of(job.queue).max_waiting
        return "" if most is None else most

    def extras(self, item: UnsentJob) -> ExtrasRecord:
        """Return the extras record of a job that has a key, a tenant, limits or a schedule, or is for a fair queue."""
        job, is_throttled = item.job, isinstance(item.unique, Throttle)
        has_key = job.key is not None and not is_throttled
        weight = self._shard.config.tasks.options_of(job.queue).weight_of(job.tenant)
        return ExtrasRecord(
            digest=_digest(item) if has_key else b"",
            until_start=has_key and item.until_start,
            first_call_us=0 if has_key and isinstance(item.unique, Debounce) else None,
            tenant=tenant_digest(job.tenant) if weight or job.tenant is not None else b"",
            weight=weight,
            throttle=_digest(item) if job.key is not None and is_throttled else b"",
            limits=tuple((limit_digest(*limit), item.cost) for limit in job.limits),
            drops=item.drops,
            schedule=schedule_id(job.task, job.occurrence.schedule) if job.occurrence else b"",
        )

    def due_and_body(self, item: UnsentJob, remaining_us: int | None) -> tuple[Part, bytes]:
        """Return the due time and the body of a job as the scripts take them."""
        job, body, shard = item.job, item.body, self._shard
        if job.expiry is not None:
            now_us = estimated_us(shard.clock)
            due_us = now_us + (remaining_us or 0) if item.due_us is None else item.due_us
            body = with_due(body, max(now_us, due_us))
        if shard.cipher.on:
            body = encrypt(body, raw_id=job.raw_id, cipher=shard.cipher)
        due: Part = item.due_us if item.due_us is not None else "" if remaining_us is None else f"+{remaining_us}"
        # Signed as late as this: the flags and the due time of an unsent job may still change.
        return due, shard.signer.sign(job.raw_id, body)


class EnqueueCall:
    """One call that stores all of its jobs or none. Safe to repeat: a job whose id is known is skipped."""

    def __init__(self, call: ScriptCall, unsent: Sequence[UnsentJob], each_remaining_us: Sequence[int | None]) -> None:
        self._call, self._unsent, self._each_remaining_us = call, unsent, each_remaining_us

    # Error reports show the frames of redis-py, so bodies are hidden here, also of jobs that wait for the commit.
    @sensitive_variables()
    def send(self) -> bool:
        """Send the call ahead of `result()`, so that the caller can do something meanwhile. See `ScriptCall.send()`."""
        return self._call.send()

    @sensitive_variables()
    def result(self) -> EnqueueResult:
        """Return what happened to the batch. O(log n) a job in Redis.

        Raises `JobRefused`, and `StoreError`s whose `maybe_accepted` says whether the jobs may be stored.
        """
        now_us, *held = self._call.result()
        to_send_on: frozenset[int] = frozenset()
        if b"" in held:
            to_send_on = frozenset(number for number, holder in zip(held[::2], held[1::2], strict=True) if not holder)
        return EnqueueResult(
            now_us=now_us,
            due_us=[
                _due_us(item, remaining_us, now_us)
                for item, remaining_us in zip(self._unsent, self._each_remaining_us, strict=True)
            ],
            held={number: holder[:12] for number, holder in zip(held[::2], held[1::2], strict=True) if holder}
            if held
            else {},
            to_send_on=to_send_on,
        )

    def abandon(self) -> None:
        """Drop the reply of a call that was sent; the jobs may be stored."""
        self._call.abandon()


class ReplaceCall:
    """One call that stores its jobs, or puts each in the place of the waiting job that holds its key.

    Of jobs with the same key only the last one is sent, with the id of the first.
    """

    def __init__(
        self,
        api: Enqueue,
        unsent: Sequence[UnsentJob],
        each_remaining_us: Sequence[int | None],
        *,
        left: Sequence[bytes],
        layout: int,
    ) -> None:
        self._api, self._layout = api, layout
        self._ids = [item.job.raw_id for item in unsent]
        positions: dict[bytes, list[int]] = {}
        for number, item in enumerate(unsent):
            positions.setdefault(_digest(item), []).append(number)
        self._digests, self._positions = list(positions), list(positions.values())
        self._unsent = [
            replace(unsent[same[-1]], job=replace(unsent[same[-1]].job, raw_id=self._ids[same[0]]))
            for same in self._positions
        ]
        self._each_remaining_us = [each_remaining_us[same[-1]] for same in self._positions]
        self._left = [left[same[-1]] for same in self._positions] if left else ()

    def send(self) -> bool:
        """Send nothing, since the holders must be read first, and return False. See `EnqueueCall.send()`."""
        return False

    @sensitive_variables()
    def result(self) -> EnqueueResult:
        """Return what happened to the batch. Two round trips, and two more each time that a holder changes meanwhile.

        Raises what `EnqueueCall.result()` does; a retryable `StoreError` if holders change ten times.
        """
        for _ in range(_TRIES):
            try:
                holders = self._api.find_holders(self._digests)
            except StoreError as error:
                # Nothing was sent.
                error.maybe_accepted = False
                raise
            try:
                now_us, words = self._api.replace(
                    self._unsent, self._each_remaining_us, holders, left=self._left, layout=self._layout
                )
            except TenantFull as error:
                for each in (error, *error.others):
                    each.indexes = [number for index in each.indexes for number in self._positions[index]]
                    each.index = each.indexes[0]
                raise
            if words != [b"ELSEWHERE"]:
                return self._result(now_us, words, holders)
        raise StoreUnavailable(
            f"the jobs that hold these keys changed {_TRIES} times before they could be replaced; nothing was stored",
            maybe_accepted=False,
        )

    def abandon(self) -> None:
        """Do nothing: no reply is outstanding between two calls."""

    def _result(self, now_us: int, words: Sequence[bytes], holders: Sequence[Holder | None]) -> EnqueueResult:
        due_us, replaced = [now_us] * len(self._ids), set[int]()
        held, stored, to_send_on = dict[int, bytes](), dict[int, Job](), set[int]()
        calls = zip(self._unsent, self._each_remaining_us, self._positions, words, holders, strict=True)
        for item, remaining_us, (first, *others), word, holder in calls:
            if word == b"GO_ON":
                to_send_on.update((first, *others))
                continue
            due_us[first] = _due_us(item, remaining_us, now_us)
            raw_id = item.job.raw_id if holder is None or word == b"STORED" else holder.raw_id
            # After a lost reply the holder may be the job itself.
            is_own = raw_id == self._ids[first]
            if is_own and others:
                stored[first] = item.job
            held.update(dict.fromkeys(others if is_own else (first, *others), raw_id))
            replaced.update(others if is_own else (first, *others) if word == b"REPLACED" else ())
        return EnqueueResult(
            now_us=now_us,
            due_us=due_us,
            held=held,
            replaced=frozenset(replaced),
            stored=stored,
            to_send_on=frozenset(to_send_on),
        )


def is_routed(job: Job) -> bool:
    """Return whether a routing value leads to a job's shard. A job of a recurring schedule is with its schedule."""
    return (job.key is not None or job.tenant is not None or bool(job.limits)) and job.occurrence is None


def places_of(job: Job, layout: Layout) -> tuple[list[Place], bytes]:
    """Return the shards that may have to store a new job, in the order to ask them, and its routing value.

    b"" is none. Raises ValueError if its limits lead to several shards.
    """
    if not is_routed(job):
        # One of a recurring schedule is in the shard of that.
        stays = job.shard < layout.shards or job.occurrence is not None
        return [Place(job.shard if stays else layout.home(job.raw_id))], b""
    routing = routing_of(job.task, job.key, job.tenant, job.limits if layout.served > 1 else ()) or b""
    return layout.places(routing), routing


def _numbered(queues: Iterable[str]) -> dict[str, int]:
    """Return the number of each queue, as the scripts count them: from 1, in the order of their keys."""
    return {queue: number for number, queue in enumerate(dict.fromkeys(queues), 1)}


def _queue_of(body: bytes) -> str:
    try:
        return read_queue(body)
    except (IndexError, UnicodeDecodeError):
        # Damaged, or gone meanwhile: the script finds that its job does not wait there.
        return DEFAULT_QUEUE


def _digest(item: UnsentJob) -> bytes:
    """Return the digest of a job's unique key."""
    assert item.job.key is not None
    return key_digest(item.job.task, item.job.key, item.job.tenant)


def _how_unique(item: UnsentJob) -> int:
    """Return what `enqueue.lua` does if the key is held: 0 to keep the holder, 1 to reject; a window is in µs."""
    return item.unique.window_us if isinstance(item.unique, Throttle) else int(item.unique == "reject")


def _remaining_us(item: UnsentJob, now: float) -> int | None:
    """Return the rest of a delay, which counts from the call; rounded so that no job runs early."""
    if item.delay_us is None:
        return None
    return item.delay_us - int((now - item.called_at) * SECOND_US)


def _due_us(item: UnsentJob, remaining_us: int | None, now_us: int) -> int:
    """Return the due time as the script computes it: not in the past, and not after the latest."""
    if item.due_us is None:
        return min(LATEST_US, now_us + remaining_us) if remaining_us and remaining_us > 0 else now_us
    return max(now_us, min(LATEST_US, item.due_us))
