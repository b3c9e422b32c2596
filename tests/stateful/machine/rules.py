"""Rules: each transition as one rule, in any order."""

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from django_delayq.job.outcome import OutcomeKind
from tests.stateful.machine.actors import FAIR, QUEUES
from tests.stateful.machine.base import Base
from tests.stateful.machine.strategies import SECOND, TIMES, Request, endings, limits, picks, queue_lists, requests
from tests.stateful.model.values import Place


class Rules(Base):
    """The rules that are one transition each."""

    @initialize(batch=st.lists(requests, max_size=6))
    def begin_with(self, batch: list[Request]) -> None:
        """Start with jobs, so that few steps are lost on an empty store."""
        self.enqueue(batch)

    # -- producers

    @rule(batch=st.lists(requests, min_size=1, max_size=4))
    def enqueue_batch(self, batch: list[Request]) -> None:
        self.enqueue(batch)

    @rule(picked=st.lists(picks, min_size=1, max_size=3), more=st.lists(requests, max_size=2))
    def enqueue_again(self, picked: list[int], more: list[Request]) -> None:
        """Send known ids again, as after a lost reply, with others between them."""
        again = [self.drafts[-1 - pick % len(self.drafts)] for pick in picked if self.drafts]
        self.send([*again, *(self.draft(request) for request in more)])

    # -- handles

    @rule(pick=picks, token=st.sampled_from([b"", b"ann", b"bob"]), may_arrive=st.booleans())
    def cancel(self, pick: int, token: bytes, may_arrive: bool) -> None:
        if raw_id := self.pick(pick):
            self.change("cancel", raw_id, token=token, may_arrive=may_arrive)

    @rule(pick=picks, when=st.sampled_from(TIMES))
    def reschedule(self, pick: int, when: tuple[str, int]) -> None:
        if raw_id := self.pick(pick):
            self.change("reschedule", raw_id, when=when)

    @rule(pick=picks, queue=st.sampled_from(QUEUES))
    def move(self, pick: int, queue: str) -> None:
        if raw_id := self.pick(pick):
            self.change("move", raw_id, queue=queue)

    @precondition(lambda self: self.world.model.at(Place.DEAD))
    @rule(pick=picks, delay_us=st.sampled_from([0, 0, 1, 3 * SECOND]), late=st.sampled_from([0, 0, 0, 1]))
    def requeue(self, pick: int, delay_us: int, late: int) -> None:
        """With the time of its death, or of another one."""
        job = self.pick_at(Place.DEAD, pick)
        self.requeue_one(job.raw_id, job.score - late, delay_us)

    @precondition(lambda self: self.world.model.at(Place.DEAD))
    @rule(most=st.integers(1, 3), others=st.sampled_from([0, 0, 1, 3]), name=st.sampled_from([b"a", b"b"]))
    def requeue_evenly(self, most: int, others: int, name: bytes) -> None:
        """Some of the dead letters, with others that are left for a later call."""
        letters = [(job.raw_id, job.score) for job in self.world.model.at(Place.DEAD)[:most]]
        self.requeue_batch(letters, name=name, left=len(letters) + others)

    @rule(name=st.sampled_from([b"a", b"b"]))
    def end_spread(self, name: bytes) -> None:
        self.end_part(name)

    @precondition(lambda self: self.world.model.at(Place.DEAD))
    @rule(pick=picks, late=st.sampled_from([0, 0, 0, 1]))
    def discard(self, pick: int, late: int) -> None:
        job = self.pick_at(Place.DEAD, pick)
        self.discard_one(job.raw_id, job.score - late)

    @rule(pick=picks, grace_us=st.sampled_from([0, 1, 10 * SECOND]), running=st.booleans())
    def stop(self, pick: int, grace_us: int, running: bool) -> None:
        """Mostly a running job; also one that waits, has ended, or was asked before."""
        claimed = self.world.model.at(Place.CLAIMED)
        raw_id = claimed[pick % len(claimed)].raw_id if running and claimed else self.pick(pick)
        if raw_id:
            self.change("stop", raw_id, grace_us=grace_us)

    # -- people and queues

    @rule(queue=st.sampled_from(QUEUES), pause=st.booleans(), lasts=st.sampled_from([None, 1, 2 * SECOND, 40 * SECOND]))
    def pause_or_resume(self, queue: str, pause: bool, lasts: int | None) -> None:
        operations, model = self.world.operations, self.world.model
        if pause:
            until_us = None if lasts is None else model.now + lasts
            assert operations.pause(queue, by="ann", until_us=until_us) == model.pause(queue, until_us)
        else:
            assert operations.resume(queue) == model.resume(queue)

    @rule(tenant=st.sampled_from(["a", "b"]), pause=st.booleans())
    def pause_or_resume_tenant(self, tenant: str, pause: bool) -> None:
        workers, model = self.world.operations.workers, self.world.model
        if pause:
            assert workers.pause_tenant(FAIR, tenant, by="ann") == model.pause_tenant(FAIR, tenant)
        else:
            assert workers.resume_tenant(FAIR, tenant) == model.resume_tenant(FAIR, tenant)

    # -- workers

    @rule(
        pick=picks,
        want=st.integers(0, 5),
        queues=queue_lists,
        strict=st.booleans(),
        may_recover=st.booleans(),
        ended=endings,
        lost=st.booleans(),
    )
    def exchange(
        self,
        pick: int,
        want: int,
        queues: list[str],
        strict: bool,
        may_recover: bool,
        ended: list[OutcomeKind],
        lost: bool,
    ) -> None:
        self.worker(pick).exchange(
            want, queues=queues, strict=strict, may_recover=may_recover, endings=ended, reply_lost=lost
        )

    @rule(pick=picks, queues=queue_lists, lost=st.booleans(), again=st.booleans())
    def chained_exchange(self, pick: int, queues: list[str], lost: bool, again: bool) -> None:
        """An idle worker's exchange, which runs when a notification ends its pop, or is repeated after a lost reply."""
        self.consume_notifications(queues)
        worker = self.worker(pick)
        if worker.remembered:
            worker.exchange(1, queues=queues, may_recover=False, reply_lost=lost, blocking=True)
            if again:
                worker.repeat()
        else:
            worker.send_cancelled(queues)

    @rule(pick=picks, most=st.integers(1, 5))
    def confirm(self, pick: int, most: int) -> None:
        worker = self.worker(pick)
        worker.confirm(worker.held[-most:])

    @rule(pick=picks, ended=endings)
    def exchange_all(self, pick: int, ended: list[OutcomeKind]) -> None:
        self.worker(pick).exchange(8, endings=ended)

    @rule(pick=picks, which=picks)
    def claim_one(self, pick: int, which: int) -> None:
        """Mostly a waiting job; also one that runs, is dead, or has ended."""
        if raw_id := self.pick(which):
            self.worker(pick).claim_one(raw_id)

    @rule(pick=picks)
    def exchange_again(self, pick: int) -> None:
        worker = self.worker(pick)
        if worker.remembered:
            worker.repeat()

    @rule(pick=picks, which=picks)
    def deliver_a_stale_exchange(self, pick: int, which: int) -> None:
        worker = self.worker(pick)
        if len(worker.sent) > 1 and worker.remembered:
            worker.send_stale(which)

    @rule(pick=picks, most=st.integers(1, 5), newest=st.booleans(), progress=st.sampled_from([None, 0.0, 0.5]))
    def heartbeat(self, pick: int, most: int, newest: bool, progress: float | None) -> None:
        worker = self.worker(pick)
        # Unconfirmed claims are among the newest.
        worker.heartbeat(worker.held[-most:] if newest else worker.held[:most], progress=progress)

    @rule(pick=picks)
    def crash(self, pick: int) -> None:
        """A worker dies and another process starts; nobody settles its claims."""
        self.worker(pick).restart()

    @rule(pick=picks, queues=queue_lists, want=st.integers(0, 8), may_recover=st.booleans())
    def worker_is_notified(self, pick: int, queues: list[str], want: int, may_recover: bool) -> None:
        """A worker's blocking pop takes notifications; it sends an exchange at once, or at a later step."""
        self.consume_notifications(queues)
        if want:
            self.worker(pick).exchange(want, queues=queues, may_recover=may_recover)

    # -- dispatchers, the clock, the server

    @rule(pick=picks, limit=limits)
    def promote(self, pick: int, limit: int) -> None:
        self.dispatchers[pick % 2].step(limit=limit)

    @rule(pick=picks, most=st.sampled_from([1, 500]))
    def reclaim(self, pick: int, most: int) -> None:
        self.dispatchers[pick % 2].apply_judged(most)

    @rule()
    def dispatcher_is_notified(self) -> None:
        if self.world.client.lpop(self.world.keys("notify_dispatcher")):
            self.world.model.alarm_heard = True

    @rule(us=st.sampled_from([1, 1_000, 250_000, 3 * SECOND, 31 * SECOND]))
    def time_passes(self, us: int) -> None:
        self.world.advance_to(self.world.model.now + us)

    @rule(off=st.sampled_from([-1, 0, 0, 1]))
    def time_advances_to_the_next_event(self, off: int) -> None:
        """A microsecond before, exactly when, or a microsecond after something is due or a lease ends."""
        self.advance_to_next(off)

    @rule(us=st.sampled_from([3_600 * SECOND, 86_400 * SECOND]))
    def much_time_passes(self, us: int) -> None:
        self.world.advance_to(self.world.model.now + us)

    @rule()
    def scripts_are_flushed(self) -> None:
        self.world.client.script_flush()
