"""Scenarios: rare orders of events, each as one rule, because random steps seldom produce them."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import rule

from django_delayq.job.outcome import OutcomeKind
from tests.stateful.actors import QUEUES, DrivenWorker
from tests.stateful.rules import Rules
from tests.stateful.strategies import ENDINGS, Request, endings, limits, requests
from tests.stateful.values import Place

MINUTE_US, DAY_US = 60_000_000, 86_400_000_000


class Scenarios(Rules):
    """All rules: single transitions and scenarios."""

    @rule(ending=st.sampled_from(ENDINGS), again=st.sampled_from([0, 1]))
    def lease_is_lost_then_first_worker_settles(self, ending: OutcomeKind, again: int) -> None:
        """The same process may claim the job again. Its new token differs."""
        first, second = self.worker(0), self.worker(again)
        if not self.claims_jobs(first):
            return
        late = list(first.held)
        self.expire_leases()
        self.step_dispatcher()
        for _ in late:
            # Suspected crashers are claimed one at a time.
            second.exchange(8)
            self.check()
        first.held = late + [claim for claim in first.held if claim not in late]
        first.exchange(0, endings=[ending] * len(late))
        self.check()

    @rule(ended=endings, most=st.integers(1, 3))
    def worker_crashes_between_claim_and_settle(self, ended: list[OutcomeKind], most: int) -> None:
        """Crashes repeat until jobs are dead: no job exceeds its policy, and suspected crashers are claimed alone."""
        for _ in range(most):
            if not self.claims_jobs(self.worker(0)):
                return
            self.worker(0).restart()
            self.expire_leases()
            self.step_dispatcher()
        self.worker(1).exchange(8, endings=ended)

    @rule(batch=st.lists(requests, min_size=2, max_size=3), ended=endings, carried_out=st.integers(0, 2))
    def reply_is_lost_and_exchange_repeated_late(
        self, batch: list[Request], ended: list[OutcomeKind], carried_out: int
    ) -> None:
        """Some claims are reclaimed meanwhile. The repeat returns the claims that are still held, and settles once."""
        worker = self.worker(0)
        self.enqueue(batch)
        worker.exchange(8, endings=ended, reply_lost=True)
        self.check()
        self.advance_to_lease_end()
        self.dispatchers[0].step()
        self.dispatchers[0].write_decided(carried_out)
        self.check()
        if worker.remembered:
            worker.repeat()
            self.check()
            worker.exchange(1, endings=[OutcomeKind.SUCCEEDED] * len(worker.held))

    @rule(batch=st.lists(requests, min_size=1, max_size=4), ended=st.sampled_from(ENDINGS))
    def reply_to_enqueue_is_lost(self, batch: list[Request], ended: OutcomeKind) -> None:
        """The enqueue is repeated while its jobs are claimed and after they end. It creates no second job."""
        self.enqueue(batch)
        drafts, worker = self.drafts[-len(batch) :], self.new_worker()
        worker.exchange(8)
        self.send(drafts)
        self.check()
        worker.exchange(0, endings=[ended] * len(worker.held))
        self.send(drafts)

    @rule(queues=st.permutations(QUEUES), strict=st.booleans(), want=st.integers(1, 4))
    def queues_are_served_in_their_order(self, queues: list[str], strict: bool, want: int) -> None:
        """Without strict order, jobs are claimed in the order of their rank."""
        self.enqueue([Request(queue=queue, priority=priority) for priority in (0, 1) for queue in queues])
        self.worker(1).exchange(want, queues=queues, strict=strict)

    @rule(first=st.booleans(), operation=st.sampled_from(["cancel", "reschedule", "move"]), a_request=requests)
    def operation_races_claim(self, first: bool, operation: str, a_request: Request) -> None:
        """The first one wins: a cancelled job is never claimed, and a claimed job does not change."""
        raw_id = self.enqueue([replace(a_request, priority=100)])[0]
        actions = [lambda: self.worker(0).exchange(8), lambda: self.change(operation, raw_id)]
        for action in reversed(actions) if first else actions:
            action()
            self.check()

    @rule(cure=st.sampled_from(["cancel", "finish"]), delay_us=st.sampled_from([0, 1]))
    def dead_letter_is_requeued_while_its_key_is_taken(self, cure: str, delay_us: int) -> None:
        """The requeue is refused. It succeeds after the other job has released the key."""
        worker = self.new_worker()
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
    def dead_letter_dies_again_before_its_requeue_or_discard(self, what: str) -> None:
        """A requeue or discard with the time of the first death does not apply to the second death."""
        worker = self.new_worker()
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
                self.world.set_time(self.world.model.now + 1)
        if what == "requeue":
            self.requeue_one(dead, deaths[0])
        else:
            self.discard_one(dead, deaths[0])

    @rule(off=st.sampled_from([0, 1]), revived=st.integers(0, 4))
    def late_heartbeat_extends_expired_lease(self, off: int, revived: int) -> None:
        """Two dispatchers read expired leases. A heartbeat arrives before they write."""
        worker = self.worker(0)
        if not self.claims_jobs(worker):
            return
        self.advance_to_lease_end(off)
        for dispatcher in self.dispatchers:
            dispatcher.step()
        worker.heartbeat(worker.held[:revived])
        for dispatcher in self.dispatchers:
            dispatcher.write_decided()
            self.check()

    @rule(batch=st.lists(requests, min_size=1, max_size=4), off=st.sampled_from([-1, 0]), limit=limits)
    def jobs_are_promoted_at_their_due_times(self, batch: list[Request], off: int, limit: int) -> None:
        """Not one microsecond early or late. If more jobs are due than the limit, several steps promote them."""
        self.enqueue(batch)
        for _ in batch:
            self.advance_to_next_event(off)
            self.dispatchers[1].step(limit=limit)
            self.check()
        self.worker(1).exchange(3)

    @rule(endings=st.lists(st.sampled_from(ENDINGS[1:]), min_size=2, max_size=5), a_request=requests)
    def one_job_fails_again_and_again(self, endings: list[OutcomeKind], a_request: Request) -> None:
        """Its attempts are counted correctly through retries, releases and crashes."""
        worker = self.new_worker()
        raw_id = self.enqueue([a_request])[0]
        for ending in endings:
            job = self.world.model.jobs.get(raw_id)
            if job is None or job.place is not Place.SCHEDULED and job.place is not Place.READY:
                return
            self.world.set_time(max(self.world.model.now, job.due_us))
            self.dispatchers[0].step()
            worker.exchange(1, queues=[job.queue])
            worker.exchange(0, endings=[ending] * len(worker.held))
            self.check()

    @rule(
        batch=st.lists(requests, min_size=1, max_size=4),
        ended=st.sampled_from([OutcomeKind.UNSTARTED, OutcomeKind.INTERRUPTED]),
    )
    def unfinished_claim_notifies_workers(self, batch: list[Request], ended: OutcomeKind) -> None:
        """The first notification was consumed, so a new one must be sent."""
        worker = self.new_worker()
        self.enqueue(batch)
        self.consume_notifications(QUEUES)
        self.consume_dispatcher_notification()
        self.step_dispatcher()
        for _ in range(3):
            self.consume_notifications(QUEUES)
            worker.exchange(9)
        worker.exchange(0, endings=[ended] * len(worker.held))

    @rule(by=st.sampled_from(["age", "number"]))
    def dead_letters_are_trimmed(self, by: str) -> None:
        """The oldest dead letters are removed first. Their unique keys were released before."""
        worker = self.new_worker()
        self.enqueue([Request(key=None if by == "age" else "n", priority=100) for _ in range(2)])
        self.enqueue([Request(priority=100) for _ in range(4)])
        worker.exchange(8)
        worker.exchange(8, endings=[OutcomeKind.REJECTED] * len(worker.held))
        if by == "age":
            self.world.set_time(self.world.model.now + DAY_US)
        self.dispatchers[0].step()

    @rule(a_request=requests, off=st.sampled_from([-1, 0]))
    def a_queue_is_removed_and_listed_again(self, a_request: Request, off: int) -> None:
        """A queue with jobs stays listed. The last two steps find it unused and remove it."""
        self.enqueue([a_request])
        self.worker(1).exchange(8, endings=[OutcomeKind.SUCCEEDED] * len(self.worker(1).held))
        self.world.set_time(self.world.model.now + self.world.model.remembered_us + MINUTE_US + off)
        for _ in range(2):
            self.step_dispatcher()
            self.check()
        self.enqueue([a_request])

    def claims_jobs(self, worker: DrivenWorker) -> bool:
        """Let a worker claim jobs; returns whether it holds any."""
        self.enqueue([Request(), Request(key="k")])
        worker.exchange(8)
        self.check()
        return any(self.world.model.leased(claim.lease) for claim in worker.held)

    def new_worker(self) -> DrivenWorker:
        """Return a new worker that holds nothing."""
        self.worker(1).restart()
        return self.worker(1)

    def expire_leases(self) -> None:
        """Let all leases expire and be reclaimed."""
        self.advance_to_lease_end(last=True)
        self.step_dispatcher()
        for dispatcher in self.dispatchers:
            dispatcher.write_decided()
        self.check()

    def advance_to_lease_end(self, off: int = 0, *, last: bool = False) -> None:
        """Advance to the end of a lease, with promotions on the way: a gap would be an outage, which spares leases."""
        model = self.world.model
        ends = [job.score for job in model.at(Place.CLAIMED)]
        if ends:
            end = (max(ends) if last else min(ends)) + off
            while end - model.now > model.outage_us:
                self.world.set_time(model.now + model.outage_us)
                self.step_dispatcher()
            self.world.set_time(max(model.now, end, model.no_reclaim_before))

    def step_dispatcher(self) -> None:
        self.dispatchers[0].step()
