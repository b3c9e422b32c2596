"""Steps: each transition as one rule, in any order."""

import sys
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from django_delayq.draft import Draft
from django_delayq.exceptions import KeyHeld
from django_delayq.job import Flag, Job
from django_delayq.outcome import Ending
from django_delayq.retry import RetryPolicy
from tests.machine import invariants, picture
from tests.machine.actors import QUEUES, DrivenDispatcher, DrivenWorker, World
from tests.machine.model import KeyTaken, ModelJob, Place

SECOND = 1_000_000
#: At once; after a delay (µs), whole milliseconds and not; at a moment so many µs from now, also past ones.
TIMES: list[tuple[str, int]] = [("now", 0), ("delay", 1), ("delay", 1_500), ("delay", 2 * SECOND + 1)]
TIMES += [("delay", 3_700 * SECOND), ("at", -5 * SECOND), ("at", 0), ("at", 999), ("at", 40 * SECOND)]
ENDINGS = [Ending.SUCCEEDED, Ending.FAILED, Ending.ASKED_RETRY, Ending.ASKED_DEAD, Ending.CRASHED]
ENDINGS += [Ending.INTERRUPTED, Ending.UNSTARTED]
picks = st.integers(0, 15)


@dataclass(frozen=True)
class Ask:
    """A job somebody asks for."""

    queue: str = "default"
    priority: int = 0
    when: tuple[str, int] = ("now", 0)
    key: str | None = None
    reject: bool = False
    max_attempts: int = 3
    large: bool = False


asks = st.builds(
    Ask,
    queue=st.sampled_from(QUEUES),
    priority=st.sampled_from([0, 0, 0, -100, 100]),
    when=st.sampled_from(TIMES),
    key=st.sampled_from([None, None, "k", "l"]),
    reject=st.booleans(),
    max_attempts=st.integers(1, 3),
    large=st.sampled_from([False, False, False, True]),
)
endings = st.lists(st.sampled_from(ENDINGS), max_size=4)
queue_lists = st.lists(st.sampled_from(QUEUES), min_size=1, unique=True)


class Steps(RuleBasedStateMachine):
    """The rules that are one transition each."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        world.begin()
        self.drafts: list[Draft] = []
        self.known: list[bytes] = []
        self.dispatchers = [DrivenDispatcher(world), DrivenDispatcher(world)]
        self.workers = [DrivenWorker(world), DrivenWorker(world)]

    @initialize(batch=st.lists(asks, max_size=6))
    def begin_with(self, batch: list[Ask]) -> None:
        """Start with jobs, so that few steps are lost on an empty store."""
        self.enqueue(batch)

    @invariant()
    def check(self) -> None:
        """Compare the whole of Redis with the model."""
        found = picture.read(self.world.client, self.world.keys)
        invariants.check(self.world.model, found, self.world.keys)

    # -- the one who enqueues

    @rule(batch=st.lists(asks, min_size=1, max_size=4))
    def enqueue_batch(self, batch: list[Ask]) -> None:
        self.enqueue(batch)

    @rule(picked=st.lists(picks, min_size=1, max_size=3), more=st.lists(asks, max_size=2))
    def enqueue_again(self, picked: list[int], more: list[Ask]) -> None:
        """Send known ids once more, as after a lost reply, with others between them."""
        again = [self.drafts[-1 - pick % len(self.drafts)] for pick in picked if self.drafts]
        self.send([*again, *(self.draft(ask) for ask in more)])

    def enqueue(self, batch: list[Ask]) -> list[bytes]:
        drafts = [self.draft(ask) for ask in batch]
        self.send(drafts)
        return [draft.job.raw_id for draft in drafts]

    def draft(self, ask: Ask) -> Draft:
        job = Job(
            raw_id=next(self.world.numbers).to_bytes(12),
            shard=0,
            task="app.task",
            queue=ask.queue,
            priority=ask.priority,
            retry=RetryPolicy(max_attempts=ask.max_attempts, base=1, cap=4),
            key=ask.key,
            # The flag is all that scripts see; a large body would only slow the machine down.
            flags=Flag.LARGE if ask.large else Flag(0),
        )
        draft = Draft.of(job, max_payload=4_096, reject=ask.reject, on_commit=False, database=None)
        word, us = ask.when
        delay_us, due_us = us if word == "delay" else None, self.world.model.now + us if word == "at" else None
        draft = draft.timed(delay_us=delay_us, due_us=due_us, called_at=0.0)
        self.drafts.append(draft)
        self.known.append(job.raw_id)
        return draft

    def send(self, drafts: list[Draft]) -> None:
        try:
            told: Any = self.world.model.enqueue(drafts)
        except KeyTaken as taken:
            told = taken.args
        try:
            found: Any = self.world.intake.enqueue(drafts).held
        except KeyHeld as error:
            found = (error.index, bytes.fromhex(error.holder))
        assert found == told

    # -- those with a handle

    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        if raw_id := self.pick(pick):
            assert self.world.operations.cancel(raw_id) == self.world.model.cancel(raw_id)

    @rule(pick=picks, when=st.sampled_from(TIMES[1:]))
    def reschedule(self, pick: int, when: tuple[str, int]) -> None:
        if raw_id := self.pick(pick):
            word, us = when
            due_us = self.world.model.now + us
            wish = {"delay_us": us} if word == "delay" else {"due_us": due_us}
            found = self.world.operations.reschedule(raw_id, **wish)
            assert found == self.world.model.reschedule(raw_id, due_us)

    @rule(pick=picks, queue=st.sampled_from(QUEUES))
    def move(self, pick: int, queue: str) -> None:
        if raw_id := self.pick(pick):
            assert self.world.operations.move(raw_id, queue) == self.world.model.move(raw_id, queue)

    @precondition(lambda self: self.world.model.at(Place.DEAD))
    @rule(pick=picks, delay_us=st.sampled_from([0, 0, 1, 3 * SECOND]), late=st.sampled_from([0, 0, 0, 1]))
    def requeue(self, pick: int, delay_us: int, late: int) -> None:
        """By somebody who saw it die, or saw another of its deaths."""
        job = self.pick_at(Place.DEAD, pick)
        self.requeue_one(job.raw_id, job.score - late, delay_us)

    @precondition(lambda self: self.world.model.at(Place.DEAD))
    @rule(pick=picks, late=st.sampled_from([0, 0, 0, 1]))
    def discard(self, pick: int, late: int) -> None:
        job = self.pick_at(Place.DEAD, pick)
        died_us = job.score - late
        found = self.world.operations.discard(job.raw_id, died_us=died_us)
        assert found == self.world.model.discard(job.raw_id, died_us)

    def requeue_one(self, raw_id: bytes, died_us: int, delay_us: int = 0) -> None:
        try:
            told: int | str | None = self.world.model.requeue(raw_id, died_us, delay_us)
        except KeyTaken:
            told = "held"
        try:
            found: int | str | None = self.world.operations.requeue(raw_id, died_us=died_us, delay_us=delay_us)
        except KeyHeld:
            found = "held"
        assert found == told

    # -- workers

    @rule(pick=picks, want=st.integers(0, 5), queues=queue_lists, strict=st.booleans(), ended=endings, lost=st.booleans())
    def exchange(self, pick: int, want: int, queues: list[str], strict: bool, ended: list[Ending], lost: bool) -> None:
        self.worker(pick).exchange(want, queues=queues, strict=strict, endings=ended, reply_lost=lost)

    @rule(pick=picks, ended=endings)
    def exchange_all(self, pick: int, ended: list[Ending]) -> None:
        self.worker(pick).exchange(8, endings=ended)

    @rule(pick=picks)
    def exchange_again(self, pick: int) -> None:
        worker = self.worker(pick)
        if worker.code in self.world.model.exchanges:
            worker.repeat()

    @rule(pick=picks, which=picks)
    def deliver_a_stale_exchange(self, pick: int, which: int) -> None:
        worker = self.worker(pick)
        if len(worker.sent) > 1 and worker.code in self.world.model.exchanges:
            worker.send_stale(which)

    @rule(pick=picks, most=st.integers(1, 5))
    def heartbeat(self, pick: int, most: int) -> None:
        worker = self.worker(pick)
        worker.heartbeat(worker.held[:most])

    @rule(pick=picks)
    def crash(self, pick: int) -> None:
        """A worker dies and another process starts; nobody settles what it held."""
        self.workers[pick % 2] = DrivenWorker(self.world)

    @rule(queue=st.sampled_from(QUEUES))
    def hear_a_bell(self, queue: str) -> None:
        """A worker's blocking pop takes the bell; it looks at some later step."""
        if self.world.client.lpop(self.world.keys.bell(queue)):
            self.world.model.heard.add(queue)
        if self.world.client.lpop(self.world.keys("bell")):
            self.world.model.unheard_queue = False

    def worker(self, pick: int) -> DrivenWorker:
        """Return a worker; one of which Redis forgot an exchange it has no answer to starts anew."""
        worker = self.workers[pick % 2]
        if worker.waits_for_answer and worker.code not in self.world.model.exchanges:
            worker = self.workers[pick % 2] = DrivenWorker(self.world)
        return worker

    # -- dispatchers, the clock, the server

    @rule(pick=picks, limit=st.sampled_from([500, 500, 1, 2]))
    def promote(self, pick: int, limit: int) -> None:
        self.dispatchers[pick % 2].step(limit=limit)

    @rule(pick=picks, most=st.sampled_from([1, 500]))
    def reclaim(self, pick: int, most: int) -> None:
        self.dispatchers[pick % 2].carry_out(most)

    @rule()
    def hear_the_alarm(self) -> None:
        if self.world.client.lpop(self.world.keys("alarm")):
            self.world.model.alarm_heard = True

    @rule(us=st.sampled_from([1, 1_000, 250_000, 3 * SECOND, 31 * SECOND]))
    def time_passes(self, us: int) -> None:
        self.world.turn_to(self.world.model.now + us)

    @rule(off=st.sampled_from([-1, 0, 0, 1]))
    def time_comes_to_the_next_moment(self, off: int) -> None:
        """To the microsecond, one before, and one after something is due or a lease ends."""
        self.turn_to_next(off)

    @rule(us=st.sampled_from([3_600 * SECOND, 86_400 * SECOND]))
    def much_time_passes(self, us: int) -> None:
        self.world.turn_to(self.world.model.now + us)

    @rule()
    def scripts_are_flushed(self) -> None:
        self.world.client.script_flush()

    def turn_to_next(self, off: int = 0) -> bool:
        moments = [job.score for job in self.world.model.jobs.values() if job.place in (Place.SCHEDULED, Place.CLAIMED)]
        ahead = [moment for moment in moments if moment + off > self.world.model.now]
        if ahead:
            self.world.turn_to(min(ahead) + off)
        return bool(ahead)

    def pick(self, pick: int) -> bytes | None:
        """Return a job's id: mostly of one that has not ended, the latest first."""
        ids = [*self.known[-2:], *reversed(self.world.model.jobs)]
        return ids[pick % len(ids)] if ids else None

    def pick_at(self, place: Place, pick: int) -> ModelJob:
        jobs = self.world.model.at(place)
        return jobs[pick % len(jobs)]

    def teardown(self) -> None:
        """Run everything to its end: nothing is stuck, and every job accepted is accounted for."""
        # After a failure there is nothing to prove any more.
        if sys.exc_info()[0] is not None:
            return
        worker, dispatcher, model = DrivenWorker(self.world), DrivenDispatcher(self.world), self.world.model
        for _ in range(2_000):
            if len(model.at(Place.DEAD)) == len(model.jobs):
                break
            dispatcher.carry_out()
            dispatcher.step()
            worker.exchange(8, endings=[Ending.SUCCEEDED] * len(worker.held))
            if not (worker.held or model.at(Place.READY) or dispatcher.judged):
                self.turn_to_next()
        self.check()
        tally = model.tally
        ended = sum(tally[word] for word in ("done", "cancelled", "discarded", "trimmed"))
        assert tally["enqueued"] == ended + len(model.at(Place.DEAD)) == ended + len(model.jobs)


