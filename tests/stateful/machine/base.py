"""Base of all rules: the actors of one example, the checks after each step, and the run to the end."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine, invariant

from django_delayq.clock import DAY_US
from django_delayq.exceptions import KeyHeld, TenantFull
from django_delayq.job.job import Expiry, Flag, Job
from django_delayq.job.outcome import OutcomeKind
from django_delayq.job.retry import RetryPolicy
from django_delayq.job.unsent import Debounce, UnsentJob
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from django_delayq.store.operations.batch import BatchJob
from django_delayq.store.operations.spread import Spread
from tests.factories import unsent
from tests.stateful import invariants, redis_state
from tests.stateful.decrypted_state import decrypted
from tests.stateful.machine.actors import FAIR, QUEUES, DrivenDispatcher, DrivenWorker, World
from tests.stateful.machine.strategies import NO_LIMITS, JobLimits, Request
from tests.stateful.model.limits import TASK
from tests.stateful.model.values import Full, KeyTaken, ModelJob, Place

#: Length of each spread.
SPREAD_US = 60_000_000


class Base(RuleBasedStateMachine):
    """Nothing random: each method does one thing in Redis and in the model, and compares both."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        world.begin()
        self.drafts: list[UnsentJob] = []
        self.known: list[bytes] = []
        #: The limits of the jobs that are made from now on.
        self.job_limits: JobLimits = NO_LIMITS
        self.dispatchers = [DrivenDispatcher(world), DrivenDispatcher(world)]
        self.workers = [DrivenWorker(world), DrivenWorker(world)]

    @invariant()
    def check(self) -> None:
        """Compare the whole of Redis with the model."""
        found, cipher = redis_state.read(self.world.client, self.world.keys), self.world.store.cipher
        if cipher.on:
            found = decrypted(found, self.world.keys, cipher)
        invariants.check(self.world.model, found, self.world.keys)

    def enqueue(self, batch: list[Request]) -> list[bytes]:
        drafts = [self.draft(request) for request in batch]
        self.send(drafts)
        return [draft.job.raw_id for draft in drafts]

    def draft(self, request: Request) -> UnsentJob:
        job = Job(
            raw_id=next(self.world.numbers).to_bytes(12),
            shard=0,
            task=TASK,
            queue=request.queue,
            priority=request.priority,
            retry=RetryPolicy(max_attempts=request.max_attempts, base=1, cap=4),
            key=request.key,
            tenant=request.tenant,
            result_ttl_us=DAY_US if request.kept else None,
            expiry=self.expiry(request),
            # Scripts see only the flag; a large body would only slow the machine down.
            flags=Flag.LARGE if request.large else Flag(0),
            limits=self.job_limits.uses,
        )
        debounce = request.unique if request.key and isinstance(request.unique, Debounce) else None
        until_start = request.until_start or debounce is not None
        draft = unsent(
            job,
            max_payload=4_096,
            unique=debounce or request.unique,
            until_start=until_start,
            in_fair_queue=self.world.model.options_of(request.queue).fair,
        )
        word, us = ("delay", debounce.wait_us) if debounce else request.when
        delay_us, due_us = us if word == "delay" else None, self.world.model.now + us if word == "at" else None
        draft = replace(
            draft.rescheduled(delay_us=delay_us, due_us=due_us, called_at=0.0),
            unique=draft.unique,
            cost=self.job_limits.cost,
            drops=self.job_limits.drops,
        )
        self.drafts.append(draft)
        self.known.append(job.raw_id)
        return draft

    def expiry(self, request: Request) -> Expiry | None:
        if request.expires is None:
            return None
        word, us, dead = request.expires
        span_us = us if word == "span" else None
        return Expiry(moment_us=0 if span_us else self.world.model.now + us, span_us=span_us, dead=dead)

    def send(self, drafts: list[UnsentJob]) -> None:
        """Send a batch; the jobs that replace others are a batch of their own, as for a sender."""
        if replacing := [draft for draft in drafts if draft.replaces]:
            drafts = [draft for draft in drafts if not draft.replaces]
            try:
                result = self.world.intake.enqueue(replacing)
                found: Any = (result.held, result.replaced)
            except TenantFull as error:
                found = refusals_of(error)
            try:
                replaced: Any = self.world.model.replace(replacing)
            except Full as refused:
                replaced = refused.args
            assert found == replaced
        if not drafts:
            return
        try:
            expected: Any = self.world.model.enqueue(drafts)
        except (KeyTaken, Full) as refused:
            expected = refused.args
        try:
            held: Any = self.world.intake.enqueue(drafts).held
        except KeyHeld as error:
            held = (error.index, bytes.fromhex(error.holder))
        except TenantFull as error:
            held = refusals_of(error)
        assert held == expected

    def change(
        self,
        operation: str,
        raw_id: bytes,
        *,
        when: tuple[str, int] = ("delay", 5),
        queue: str = QUEUES[1],
        token: bytes = b"",
        may_arrive: bool = False,
        grace_us: int = 0,
    ) -> None:
        operations, model = self.world.operations, self.world.model
        if operation == "cancel":
            expected = model.cancel(raw_id, token=token, may_arrive=may_arrive)
            assert operations.cancel(raw_id, token=token, may_arrive=may_arrive) == expected
        elif operation == "stop":
            assert operations.stop(raw_id, grace_us=grace_us) == model.stop(raw_id, grace_us)
        elif operation == "move":
            assert operations.move(raw_id, queue) == model.move(raw_id, queue)
        elif operation == "reschedule":
            word, us = when
            due_us = model.now + us
            time = {"delay_us": us} if word == "delay" else {"due_us": due_us}
            assert operations.reschedule(raw_id, **time) == model.reschedule(raw_id, due_us)
        else:
            raise ValueError(f"change() does not know the operation {operation!r}")

    def requeue_one(self, raw_id: bytes, died_us: int, delay_us: int = 0) -> int | None:
        try:
            expected: int | str | None = self.world.model.requeue(raw_id, died_us, delay_us)
        except KeyTaken:
            expected = "held"
        try:
            found: int | str | None = self.world.operations.requeue(raw_id, died_us=died_us, delay_us=delay_us)
        except KeyHeld:
            found = "held"
        assert found == expected
        return found if isinstance(found, int) else None

    def undo_requeue_one(self, raw_id: bytes, died_us: int, left_due_us: int | None) -> None:
        expected = self.world.model.undo_requeue(raw_id, died_us, left_due_us)
        found = self.world.operations.undo_requeue(raw_id, died_us=died_us, left_due_us=left_due_us)
        assert found is expected

    def requeue_batch(
        self, letters: Sequence[tuple[bytes, int]], *, name: bytes, left: int, begun: bool = False
    ) -> bool:
        """Send a batch of a caller of a spread; return whether it has begun then."""
        spread = Spread(name=name, length_us=SPREAD_US, left=left, begun=begun)
        batch = [BatchJob(raw_id=raw_id, died_us=died_us) for raw_id, died_us in letters]
        effects = self.world.operations.dead_letters.requeue(batch, spread=spread)
        expected = self.world.model.requeue_evenly(letters, name, SPREAD_US, left, first=not begun)
        assert [effect.due_us or 0 for effect in effects] == expected
        return spread.begun

    def end_part(self, name: bytes) -> None:
        """End the part of one caller of a spread."""
        self.world.operations.dead_letters.end_spread(Spread(name=name, length_us=SPREAD_US, left=0, begun=True))
        self.world.model.end_spread(name)

    def discard_one(self, raw_id: bytes, died_us: int) -> None:
        found = self.world.operations.discard(raw_id, died_us=died_us)
        assert found == self.world.model.discard(raw_id, died_us)

    def consume_notifications(self, queues: Sequence[str]) -> None:
        keys = self.world.keys
        for queue in queues:
            if self.world.client.lpop(keys.notify(queue)):
                self.world.model.notified.add(queue)
        if set(queues) == set(QUEUES) and self.world.client.lpop(keys("notify")):
            self.world.model.notified_all = True

    def worker(self, pick: int) -> DrivenWorker:
        return self.workers[pick % 2]

    def advance_to_next(self, off: int = 0) -> bool:
        moments = [job.score for job in self.world.model.jobs.values() if job.place in (Place.SCHEDULED, Place.CLAIMED)]
        moments.append(self.world.model.no_reclaim_before)
        moments += [until_us for _, until_us in self.world.model.paused.values() if until_us is not None]
        moments += [ends for _, ends in self.world.model.windows.values()]
        moments += [*self.world.model.limits.open.values(), *self.world.model.limits.holders.values()]
        ahead = [moment for moment in moments if moment + off > self.world.model.now]
        if ahead:
            self.world.advance_to(min(ahead) + off)
        return bool(ahead)

    def pick(self, pick: int) -> bytes | None:
        """Return a job's id: mostly of a waiting one; also of one that is claimed, dead, or gone."""
        jobs = list(self.world.model.jobs.values())
        ids = [job.raw_id for job in jobs if job.waits]
        ids += [job.raw_id for job in jobs if not job.waits][:3] + self.known[-2:]
        return ids[pick % len(ids)] if ids else None

    def pick_at(self, place: Place, pick: int) -> ModelJob:
        jobs = self.world.model.at(place)
        return jobs[pick % len(jobs)]

    def fresh_worker(self) -> DrivenWorker:
        """Return a worker that holds nothing."""
        self.worker(1).restart()
        return self.worker(1)

    def expire_leases(self) -> None:
        """Let every lease expire and be reclaimed."""
        self.advance_to_lease_end(last=True)
        self.look()
        for dispatcher in self.dispatchers:
            dispatcher.apply_judged()
        self.check()

    def advance_to_lease_end(self, off: int = 0, *, last: bool = False) -> None:
        """With promotions meanwhile: without them it would be an outage, which spares the leases."""
        model = self.world.model
        ends = [job.score for job in model.at(Place.CLAIMED)]
        if ends:
            end = (max(ends) if last else min(ends)) + off
            while end - model.now > model.outage_us:
                self.world.advance_to(model.now + model.outage_us)
                self.look()
            self.world.advance_to(max(model.now, end, model.no_reclaim_before))

    def look(self) -> None:
        self.dispatchers[0].step()

    def teardown(self) -> None:
        """Run everything to its end: no job is stuck, and every accepted job is accounted for."""
        # After a failure there is nothing to check any more.
        if sys.exc_info()[0] is not None:
            return
        # At any end of a walk, a consistency check with repair finds nothing, and so changes nothing.
        assert list(ConsistencyCheck(self.world.shard).walk(repair=True)) == []
        self.check()
        worker, dispatcher, model = DrivenWorker(self.world), DrivenDispatcher(self.world), self.world.model
        for queue in list(model.paused):
            assert self.world.operations.resume(queue) == model.resume(queue)
        for tenant in ("a", "b"):
            assert self.world.operations.workers.resume_tenant(FAIR, tenant) == model.resume_tenant(FAIR, tenant)
        if model.limits.paused_us is not None:
            assert self.world.operations.limits.resume_task(TASK) == model.resume_task()
        self.check()
        for _ in range(2_000):
            if len(model.at(Place.DEAD)) == len(model.jobs):
                break
            dispatcher.apply_judged()
            dispatcher.step()
            worker.exchange(8, endings=[OutcomeKind.SUCCEEDED] * len(worker.held))
            if not (worker.held or model.at(Place.READY) or model.at(Place.RECOVERED) or dispatcher.judged):
                self.advance_to_next()
        self.check()
        counts = model.counts
        ended = sum(counts[word] for word in ("done", "cancelled", "expired", "dropped", "discarded", "trimmed"))
        assert counts["enqueued"] == ended + len(model.at(Place.DEAD)) == ended + len(model.jobs)


def refusals_of(error: TenantFull) -> tuple[list[tuple[list[int], int]]]:
    """Return what the model's `Full` has."""
    return ([(list(each.indexes), each.waiting) for each in (error, *error.others)],)
