"""Scenarios: rare orders of events as one rule each, which random steps seldom produce."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import rule

from django_delayq.job.outcome import OutcomeKind
from tests.stateful.machine.actors import QUEUES, DrivenWorker
from tests.stateful.machine.strategies import ENDINGS, SECOND, THROTTLE, Request, endings, limits, requests
from tests.stateful.machine.tenants import Tenants
from tests.stateful.model.values import Place, throttle_of

MINUTE_US, DAY_US = 60_000_000, 86_400_000_000


class Scenarios(Tenants):
    """All rules and scenarios."""

    @rule(ending=st.sampled_from(ENDINGS), again=st.sampled_from([0, 1]))
    def lease_is_lost_then_claimed_again_then_the_first_worker_settles(self, ending: OutcomeKind, again: int) -> None:
        """Also if the same process claims it again: the token is another one."""
        first, second = self.worker(0), self.worker(again)
        if not self.claimed(first):
            return
        late = list(first.held)
        self.expire_leases()
        self.look()
        for _ in late:
            # Crashed jobs are claimed one at a time.
            second.exchange(8)
            self.check()
        first.held = late + [claim for claim in first.held if claim not in late]
        first.exchange(0, endings=[ending] * len(late))
        self.check()

    @rule(ended=endings, most=st.integers(1, 3))
    def worker_crashes_between_claim_and_settle(self, ended: list[OutcomeKind], most: int) -> None:
        """Until its jobs are dead: each is tried as often as its policy allows, crashed ones one at a time."""
        for _ in range(most):
            if not self.claimed(self.worker(0)):
                return
            self.worker(0).restart()
            self.expire_leases()
            self.look()
        self.worker(1).exchange(8, endings=ended)

    @rule(batch=st.lists(requests, min_size=2, max_size=3), ended=endings, carried_out=st.integers(0, 2))
    def reply_is_lost_and_the_exchange_repeated_late(
        self, batch: list[Request], ended: list[OutcomeKind], carried_out: int
    ) -> None:
        """Meanwhile some of its claims are reclaimed; the repeat returns those still held, settled once."""
        worker = self.worker(0)
        self.enqueue(batch)
        worker.exchange(8, endings=ended, reply_lost=True)
        self.check()
        self.advance_to_lease_end()
        self.dispatchers[0].step()
        self.dispatchers[0].apply_judged(carried_out)
        self.check()
        if worker.remembered:
            worker.repeat()
            self.check()
            worker.exchange(1, endings=[OutcomeKind.SUCCEEDED] * len(worker.held))

    @rule(again=st.booleans())
    def job_is_asked_to_stop_after_it_was_judged(self, again: bool) -> None:
        """The dispatcher judges it again, with the stop; its worker is lost, and may come back too late."""
        worker = self.fresh_worker()
        if not self.claimed(worker):
            return
        worker.heartbeat(worker.held, progress=0.5)
        self.advance_to_lease_end()
        self.dispatchers[0].step()
        for claim in worker.held:
            self.change("stop", claim.raw_id, grace_us=1)
            self.check()
        self.dispatchers[0].apply_judged()
        self.check()
        self.dispatchers[0].step()
        self.dispatchers[0].apply_judged()
        self.check()
        if again:
            worker.exchange(0, endings=[OutcomeKind.FAILED] * len(worker.held))

    @rule(progress=st.sampled_from([0.25, 1.0]), ending=st.sampled_from([OutcomeKind.SUCCEEDED, OutcomeKind.FAILED]))
    def job_that_was_asked_to_stop_reports_progress(self, progress: float, ending: OutcomeKind) -> None:
        """It remains stopped, and is asked once more; then its code ends."""
        worker = self.fresh_worker()
        if not self.claimed(worker):
            return
        for _ in range(2):
            for claim in worker.held:
                self.change("stop", claim.raw_id, grace_us=10 * SECOND)
            self.check()
            worker.heartbeat(worker.held, progress=progress)
            self.check()
        worker.exchange(0, endings=[ending] * len(worker.held))

    @rule(batch=st.lists(requests, min_size=1, max_size=4), ended=st.sampled_from(ENDINGS))
    def reply_to_an_enqueue_is_lost(self, batch: list[Request], ended: OutcomeKind) -> None:
        """It is repeated when its jobs are claimed, and when they failed or are dead: no job is stored twice."""
        self.enqueue(batch)
        drafts, worker = self.drafts[-len(batch) :], self.fresh_worker()
        worker.exchange(8)
        self.send(drafts)
        self.check()
        worker.exchange(0, endings=[ended] * len(worker.held))
        self.send(drafts)

    @rule(queues=st.permutations(QUEUES), strict=st.booleans(), want=st.integers(1, 4))
    def queues_are_served_in_their_order(self, queues: list[str], strict: bool, want: int) -> None:
        """Or, without strict order, by the rank of their jobs."""
        self.enqueue([Request(queue=queue, priority=priority) for priority in (0, 1) for queue in queues])
        self.worker(1).exchange(want, queues=queues, strict=strict)

    @rule(first=st.booleans(), operation=st.sampled_from(["cancel", "reschedule", "move"]), request=requests)
    def operation_races_claim(self, first: bool, operation: str, request: Request) -> None:
        """The first one wins: a cancelled job is never claimed, and a claimed one does not change."""
        raw_id = self.enqueue([replace(request, priority=100)])[0]
        actions = [lambda: self.worker(0).exchange(8), lambda: self.change(operation, raw_id)]
        for action in reversed(actions) if first else actions:
            action()
            self.check()

    @rule(cure=st.sampled_from(["cancel", "finish"]), delay_us=st.sampled_from([0, 1]))
    def dead_letter_is_requeued_while_its_key_is_taken(self, cure: str, delay_us: int) -> None:
        """It is refused until the other job has released the key."""
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

    @rule(
        first=st.integers(1, 3),
        others=st.integers(0, 3),
        left=st.integers(0, 6),
        later=st.sampled_from([0, 1, SECOND]),
        ends=st.booleans(),
    )
    def spread_is_continued(self, first: int, others: int, left: int, later: int, ends: bool) -> None:
        """A call is interrupted after its first batch, or ends beside the next one, which counts other numbers."""
        worker = self.fresh_worker()
        dead = self.enqueue([Request(priority=100) for _ in range(5)])
        worker.exchange(9)
        worker.exchange(0, endings=[OutcomeKind.REJECTED] * len(worker.held))
        found = (self.world.model.jobs.get(raw_id) for raw_id in dead)
        letters = [(job.raw_id, job.score) for job in found if job and job.place is Place.DEAD]
        self.requeue_batch(letters[:first], name=b"c", left=first + others)
        self.check()
        self.world.advance_to(self.world.model.now + later)
        second = letters[first : first + 1], letters[first + 1 :]
        begun = self.requeue_batch(second[0], name=b"c", left=left)
        if ends:
            self.end_part(b"c")
            self.check()
        self.requeue_batch(second[1], name=b"c", left=left, begun=begun)

    @rule(
        request=requests,
        delay_us=st.sampled_from([0, 1, SECOND]),
        begins=st.booleans(),
        ending=st.sampled_from([OutcomeKind.FAILED, OutcomeKind.SNOOZED, OutcomeKind.REJECTED]),
    )
    def retry_is_undone(self, request: Request, delay_us: int, begins: bool, ending: OutcomeKind) -> None:
        """The job is the dead letter again that it was, unless it has begun since."""
        worker = self.fresh_worker()
        dead = self.enqueue([replace(request, priority=100, max_attempts=1)])[0]
        worker.exchange(9)
        worker.exchange(0, endings=[OutcomeKind.REJECTED] * len(worker.held))
        letter = self.world.model.jobs.get(dead)
        if letter is None or letter.place is not Place.DEAD:
            return
        died_us = letter.score
        left_due_us = self.requeue_one(dead, died_us, delay_us)
        self.check()
        if begins:
            worker.exchange(9)
            worker.exchange(0, endings=[ending] * len(worker.held))
            if letter.place is Place.DEAD:
                # Another person requeues it.
                self.requeue_one(dead, letter.score)
        self.undo_requeue_one(dead, died_us, left_due_us)
        self.check()
        self.undo_requeue_one(dead, died_us, left_due_us)

    @rule(what=st.sampled_from(["requeue", "discard"]))
    def dead_letter_dies_again_before_somebody_decides(self, what: str) -> None:
        """A person who saw the first death has not seen the second."""
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
                self.world.advance_to(self.world.model.now + 1)
        if what == "requeue":
            self.requeue_one(dead, deaths[0])
        else:
            self.discard_one(dead, deaths[0])

    @rule(request=requests, by_heartbeat=st.booleans())
    def claim_behind_a_pop_is_confirmed(self, request: Request, by_heartbeat: bool) -> None:
        """The claim of a blocking exchange is unconfirmed until a heartbeat, or the worker itself, confirms it."""
        self.enqueue([request])
        self.advance_to_next()
        self.dispatchers[0].step()
        worker = self.worker(0)
        worker.exchange(0)
        worker.exchange(1, may_recover=False, blocking=True)
        self.check()
        if by_heartbeat:
            worker.heartbeat(worker.held[-1:])
        else:
            worker.confirm(worker.held[-1:])
        self.check()

    @rule(off=st.sampled_from([0, 1]), revived=st.integers(0, 4))
    def late_heartbeat_revives_what_was_judged(self, off: int, revived: int) -> None:
        """Two dispatchers read expired leases; a heartbeat arrives before they write."""
        worker = self.worker(0)
        if not self.claimed(worker):
            return
        self.advance_to_lease_end(off)
        for dispatcher in self.dispatchers:
            dispatcher.step()
        worker.heartbeat(worker.held[:revived])
        for dispatcher in self.dispatchers:
            dispatcher.apply_judged()
            self.check()

    @rule(batch=st.lists(requests, min_size=1, max_size=4), off=st.sampled_from([-1, 0]), limit=limits)
    def jobs_are_promoted_at_their_times(self, batch: list[Request], off: int, limit: int) -> None:
        """Neither a microsecond before nor after; if more are due than one promotion moves, in several."""
        self.enqueue(batch)
        for _ in batch:
            self.advance_to_next(off)
            self.dispatchers[1].step(limit=limit)
            self.check()
        self.worker(1).exchange(3)

    @rule(endings=st.lists(st.sampled_from(ENDINGS[1:]), min_size=2, max_size=5), request=requests)
    def one_job_fails_again_and_again(self, endings: list[OutcomeKind], request: Request) -> None:
        """Through delays, releases and crashes its attempts are counted correctly."""
        worker = self.fresh_worker()
        raw_id = self.enqueue([request])[0]
        for ending in endings:
            job = self.world.model.jobs.get(raw_id)
            if job is None or job.place is not Place.SCHEDULED and job.place is not Place.READY:
                return
            self.world.advance_to(max(self.world.model.now, job.due_us))
            self.dispatchers[0].step()
            worker.exchange(1, queues=[job.queue])
            worker.exchange(0, endings=[ending] * len(worker.held))
            self.check()

    @rule(
        batch=st.lists(requests, min_size=1, max_size=4),
        ended=st.sampled_from([OutcomeKind.UNSTARTED, OutcomeKind.INTERRUPTED]),
    )
    def released_jobs_notify_again(self, batch: list[Request], ended: OutcomeKind) -> None:
        """Their first notification was consumed before; they must notify again."""
        worker = self.fresh_worker()
        self.enqueue(batch)
        self.consume_notifications(QUEUES)
        self.dispatcher_is_notified()
        self.look()
        for _ in range(3):
            self.consume_notifications(QUEUES)
            worker.exchange(9)
        worker.exchange(0, endings=[ended] * len(worker.held))

    @rule(by=st.sampled_from(["age", "number"]))
    def dead_letters_are_removed(self, by: str) -> None:
        """Those that are too old, else those that are too many; their keys were released before."""
        worker = self.fresh_worker()
        self.enqueue([Request(key=None if by == "age" else "n", priority=100) for _ in range(2)])
        self.enqueue([Request(priority=100) for _ in range(4)])
        worker.exchange(8)
        worker.exchange(8, endings=[OutcomeKind.REJECTED] * len(worker.held))
        if by == "age":
            self.world.advance_to(self.world.model.now + DAY_US)
        self.dispatchers[0].step()

    @rule(request=requests, off=st.sampled_from([-1, 0]))
    def an_unused_queue_is_removed_and_comes_back(self, request: Request, off: int) -> None:
        """One with waiting or running jobs stays; the last two promotions find it unused, and remove it."""
        self.enqueue([request])
        self.worker(1).exchange(8, endings=[OutcomeKind.SUCCEEDED] * len(self.worker(1).held))
        self.world.advance_to(self.world.model.now + self.world.model.remembered_us + MINUTE_US + off)
        for _ in range(2):
            self.look()
            self.check()
        self.enqueue([request])

    @rule(
        request=requests,
        ahead_us=st.sampled_from([3 * SECOND, 5 * MINUTE_US]),
        confirmed=st.integers(0, 4),
        stopped=st.sampled_from([0, 0, 1, 4]),
        ended=st.lists(st.sampled_from(ENDINGS), min_size=1, max_size=3),
    )
    def jobs_are_run_before_their_time(
        self, request: Request, ahead_us: int, confirmed: int, stopped: int, ended: list[OutcomeKind]
    ) -> None:
        """However they come back, also from a process that died, they wait for their time again."""
        worker = self.fresh_worker()
        for raw_id in self.enqueue([replace(request, when=("delay", ahead_us), key=None)] * 4):
            worker.claim_one(raw_id)
        self.check()
        for claim in worker.held[:stopped]:
            self.change("stop", claim.raw_id, grace_us=10 * SECOND)
        worker.heartbeat(worker.held[:confirmed], progress=0.5)
        self.check()
        worker.exchange(0, endings=ended)
        self.check()
        self.expire_leases()

    @rule(
        ends=st.sampled_from(["cancel", "run", "requeue", "time", "time", "promotion"]),
        off=st.sampled_from([-1, 0]),
        again=st.booleans(),
    )
    def calls_are_throttled(self, ends: str, off: int, again: bool) -> None:
        """Until the window is over, or its job cancelled; a send that is repeated afterwards finds itself."""
        call, worker = Request(key="t", unique=THROTTLE, priority=100), self.fresh_worker()
        first, *_ = self.enqueue([call, call])
        draft = self.drafts[-2]
        self.check()
        if ends in ("run", "requeue"):
            worker.exchange(9)
            ending = OutcomeKind.SUCCEEDED if ends == "run" else OutcomeKind.REJECTED
            worker.exchange(0, endings=[ending] * len(worker.held))
            letter = self.world.model.jobs.get(first)
            if letter and letter.place is Place.DEAD:
                self.requeue_one(first, letter.score)
        elif ends == "cancel":
            self.change("cancel", first)
        else:
            window = self.world.model.windows.get(throttle_of(draft) or b"")
            self.world.advance_to(max(self.world.model.now, window[1] + off if window else 0))
            if ends == "promotion":
                self.look()
        self.check()
        self.send([draft, self.draft(call)] if again else [self.draft(call)])
        self.check()
        self.send([draft])
        self.check()
        self.change("cancel", first)

    def claimed(self, worker: DrivenWorker) -> bool:
        """Let a worker hold a claim that it knows of."""
        self.enqueue([Request(), Request(key="k")])
        worker.exchange(8)
        self.check()
        return any(self.world.model.leased(claim.lease) for claim in worker.held)
