"""Roads: rare orders of events as one rule each, for random steps seldom walk them."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import rule

from django_delayq.job.outcome import OutcomeKind
from tests.stateful.actors import QUEUES, DrivenWorker
from tests.stateful.rules import Rules
from tests.stateful.strategies import ENDINGS, Request, asks, endings, limits
from tests.stateful.values import Place

MINUTE_US, DAY_US = 60_000_000, 86_400_000_000


class Scenarios(Rules):
    """All rules."""

    @rule(ending=st.sampled_from(ENDINGS), again=st.sampled_from([0, 1]))
    def lease_is_lost_then_claimed_again_then_the_first_worker_settles(self, ending: OutcomeKind, again: int) -> None:
        """Also where it is the same process that claims it again: the token is another one."""
        first, second = self.worker(0), self.worker(again)
        if not self.claimed(first):
            return
        late = list(first.held)
        self.lapse()
        self.look()
        for _ in late:
            # Suspects are claimed one at a time.
            second.exchange(8)
            self.check()
        first.held = late + [claim for claim in first.held if claim not in late]
        first.exchange(0, endings=[ending] * len(late))
        self.check()

    @rule(ended=endings, most=st.integers(1, 3))
    def worker_crashes_between_claim_and_settle(self, ended: list[OutcomeKind], most: int) -> None:
        """Until its jobs are dead: each is tried as often as its policy says and no more, suspects one at a time."""
        for _ in range(most):
            if not self.claimed(self.worker(0)):
                return
            self.worker(0).restart()
            self.lapse()
            self.look()
        self.worker(1).exchange(8, endings=ended)

    @rule(batch=st.lists(asks, min_size=2, max_size=3), ended=endings, carried_out=st.integers(0, 2))
    def reply_is_lost_and_the_exchange_repeated_late(
        self, batch: list[Request], ended: list[OutcomeKind], carried_out: int
    ) -> None:
        """Meanwhile some of what it claimed is taken back; the repeat brings what is still held, settled once."""
        worker = self.worker(0)
        self.enqueue(batch)
        worker.exchange(8, endings=ended, reply_lost=True)
        self.check()
        self.turn_to_lease_end()
        self.dispatchers[0].step()
        self.dispatchers[0].carry_out(carried_out)
        self.check()
        if worker.remembered:
            worker.repeat()
            self.check()
            worker.exchange(1, endings=[OutcomeKind.SUCCEEDED] * len(worker.held))

    @rule(batch=st.lists(asks, min_size=1, max_size=4), ended=st.sampled_from(ENDINGS))
    def reply_to_an_enqueue_is_lost(self, batch: list[Request], ended: OutcomeKind) -> None:
        """It is sent again when its jobs are claimed, and again when they failed or are dead: no second job of one."""
        self.enqueue(batch)
        drafts, worker = self.drafts[-len(batch) :], self.fresh_worker()
        worker.exchange(8)
        self.send(drafts)
        self.check()
        worker.exchange(0, endings=[ended] * len(worker.held))
        self.send(drafts)

    @rule(queues=st.permutations(QUEUES), strict=st.booleans(), want=st.integers(1, 4))
    def queues_are_served_in_their_order(self, queues: list[str], strict: bool, want: int) -> None:
        """Or, where no order is asked for, by the rank of their jobs."""
        self.enqueue([Request(queue=queue, priority=priority) for priority in (0, 1) for queue in queues])
        self.worker(1).exchange(want, queues=queues, strict=strict)

    @rule(first=st.booleans(), operation=st.sampled_from(["cancel", "reschedule", "move"]), ask=asks)
    def operation_races_claim(self, first: bool, operation: str, ask: Request) -> None:
        """Whoever comes first wins; a job that was cancelled is never claimed, one that is claimed stays as it is."""
        raw_id = self.enqueue([replace(ask, priority=100)])[0]
        actions = [lambda: self.worker(0).exchange(8), lambda: self.change(operation, raw_id)]
        for action in reversed(actions) if first else actions:
            action()
            self.check()

    @rule(cure=st.sampled_from(["cancel", "finish"]), delay_us=st.sampled_from([0, 1]))
    def dead_letter_is_requeued_while_its_key_is_taken(self, cure: str, delay_us: int) -> None:
        """It is refused, and let back once the other job has let the key go."""
        worker = self.fresh_worker()
        dead = self.enqueue([Request(key="m", max_attempts=1)])[0]
        worker.exchange(9)
        worker.exchange(0, endings=[OutcomeKind.REJECTED] * len(worker.held))
        other = self.enqueue([Request(key="m")])[0]
        letter = self.world.model.jobs.get(dead)
        if letter is None or letter.place is not Place.DEAD:
            return
        self.send([draft for draft in self.drafts if draft.job.raw_id == dead])
        self.requeue_one(dead, letter.score, delay_us)
        self.check()
        if cure == "cancel":
            self.change("cancel", other)
        else:
            worker.exchange(9)
            worker.exchange(0, endings=[OutcomeKind.SUCCEEDED] * len(worker.held))
        self.check()
        self.requeue_one(dead, letter.score, delay_us)

    @rule(what=st.sampled_from(["requeue", "discard"]))
    def dead_letter_dies_again_before_somebody_decides(self, what: str) -> None:
        """Who saw the first death has not seen the second."""
        worker = self.fresh_worker()
        dead = self.enqueue([Request(priority=100)])[0]
        deaths = []
        for _ in range(2):
            worker.exchange(9)
            worker.exchange(0, endings=[OutcomeKind.REJECTED] * len(worker.held))
            letter = self.world.model.jobs.get(dead)
            if letter is None or letter.place is not Place.DEAD:
                return
            deaths.append(letter.score)
            if len(deaths) == 1:
                self.requeue_one(dead, letter.score)
                self.world.turn_to(self.world.model.now + 1)
        if what == "requeue":
            self.requeue_one(dead, deaths[0])
        else:
            self.discard_one(dead, deaths[0])

    @rule(off=st.sampled_from([0, 1]), revived=st.integers(0, 4))
    def late_heartbeat_revives_what_was_judged(self, off: int, revived: int) -> None:
        """Two dispatchers read that leases lapsed; a heartbeat comes before they write."""
        worker = self.worker(0)
        if not self.claimed(worker):
            return
        self.turn_to_lease_end(off)
        for dispatcher in self.dispatchers:
            dispatcher.step()
        worker.heartbeat(worker.held[:revived])
        for dispatcher in self.dispatchers:
            dispatcher.carry_out()
            self.check()

    @rule(batch=st.lists(asks, min_size=1, max_size=4), off=st.sampled_from([-1, 0]), limit=limits)
    def jobs_are_promoted_at_their_moments(self, batch: list[Request], off: int, limit: int) -> None:
        """Not a microsecond before, and not one after; where more is due than one step moves, in several."""
        self.enqueue(batch)
        for _ in batch:
            self.turn_to_next(off)
            self.dispatchers[1].step(limit=limit)
            self.check()
        self.worker(1).exchange(3)

    @rule(endings=st.lists(st.sampled_from(ENDINGS[1:]), min_size=2, max_size=5), ask=asks)
    def one_job_fails_again_and_again(self, endings: list[OutcomeKind], ask: Request) -> None:
        """Through back-offs, releases and crashes: its attempts are counted right."""
        worker = self.fresh_worker()
        raw_id = self.enqueue([ask])[0]
        for ending in endings:
            job = self.world.model.jobs.get(raw_id)
            if job is None or job.place is not Place.SCHEDULED and job.place is not Place.READY:
                return
            self.world.turn_to(max(self.world.model.now, job.due_us))
            self.dispatchers[0].step()
            worker.exchange(1, queues=[job.queue])
            worker.exchange(0, endings=[ending] * len(worker.held))
            self.check()

    @rule(
        batch=st.lists(asks, min_size=1, max_size=4),
        ended=st.sampled_from([OutcomeKind.UNSTARTED, OutcomeKind.INTERRUPTED]),
    )
    def what_is_given_back_is_known_of(self, batch: list[Request], ended: OutcomeKind) -> None:
        """Its bell was heard and answered before; it must ring again."""
        worker = self.fresh_worker()
        self.enqueue(batch)
        self.hear(QUEUES)
        self.hear_the_alarm()
        self.look()
        for _ in range(3):
            self.hear(QUEUES)
            worker.exchange(9)
        worker.exchange(0, endings=[ended] * len(worker.held))

    @rule(by=st.sampled_from(["age", "number"]))
    def dead_letters_are_trimmed(self, by: str) -> None:
        """Those too old, else those too many; a key of theirs was let go before."""
        worker = self.fresh_worker()
        self.enqueue([Request(key=None if by == "age" else "n", priority=100) for _ in range(2)])
        self.enqueue([Request(priority=100) for _ in range(4)])
        worker.exchange(8)
        worker.exchange(8, endings=[OutcomeKind.REJECTED] * len(worker.held))
        if by == "age":
            self.world.turn_to(self.world.model.now + DAY_US)
        self.dispatchers[0].step()

    @rule(ask=asks, off=st.sampled_from([-1, 0]))
    def a_queue_is_forgotten_and_comes_back(self, ask: Request, off: int) -> None:
        """One with work or a running job is kept; the last two steps find it unused, and forget it."""
        self.enqueue([ask])
        self.worker(1).exchange(8, endings=[OutcomeKind.SUCCEEDED] * len(self.worker(1).held))
        self.world.turn_to(self.world.model.now + self.world.model.remembered_us + MINUTE_US + off)
        for _ in range(2):
            self.look()
            self.check()
        self.enqueue([ask])

    def claimed(self, worker: DrivenWorker) -> bool:
        """Have a worker hold something that it knows of."""
        self.enqueue([Request(), Request(key="k")])
        worker.exchange(8)
        self.check()
        return any(self.world.model.leased(claim.lease) for claim in worker.held)

    def fresh_worker(self) -> DrivenWorker:
        """Return a worker that holds nothing."""
        self.worker(1).restart()
        return self.worker(1)

    def lapse(self) -> None:
        """Have every lease lapse and be taken back."""
        self.turn_to_lease_end(last=True)
        self.look()
        for dispatcher in self.dispatchers:
            dispatcher.carry_out()
        self.check()

    def turn_to_lease_end(self, off: int = 0, *, last: bool = False) -> None:
        """With promotions on the way: without, it would be an outage, which spares the leases."""
        model = self.world.model
        ends = [job.score for job in model.at(Place.CLAIMED)]
        if ends:
            end = (max(ends) if last else min(ends)) + off
            while end - model.now > model.outage_us:
                self.world.turn_to(model.now + model.outage_us)
                self.look()
            self.world.turn_to(max(model.now, end, model.no_reclaim_before))

    def look(self) -> None:
        self.dispatchers[0].step()
