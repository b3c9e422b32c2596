"""Scheduled: the machine with recurring schedules: every rule, and rules and scenarios of schedules alone."""

import sys
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from django_delayq.job.outcome import OutcomeKind
from django_delayq.store.records import DeclaredBy
from tests.stateful.machine.actors import FAIR, QUEUES
from tests.stateful.machine.limited import Limited
from tests.stateful.machine.schedule_steps import EVERY, NAMES, Recurring, ScheduleSteps, possible
from tests.stateful.machine.strategies import ENDINGS, NO_LIMITS, SECOND, endings, picks
from tests.stateful.model.values import Place

WRITERS = [DeclaredBy(code, SECOND, code * 2) for code in (b"old code", b"new code")]
recurring = st.builds(
    Recurring,
    name=st.sampled_from(NAMES),
    every=st.sampled_from([EVERY, EVERY, EVERY, 60, 7_200]),
    overlap=st.sampled_from(["skip", "wait", "stop", "allow"]),
    catch_up=st.sampled_from(["last", "last", "none", "all"]),
    window=st.sampled_from([None, 1, 10]),
    jitter=st.sampled_from([None, None, 1, 3]),
    ends=st.sampled_from([None, None, None, 11]),
    pause_after=st.sampled_from([None, 1, 2]),
    queue=st.sampled_from([*QUEUES, "default"]),
    tenant=st.sampled_from([None, None, "a"]),
    priority=st.sampled_from([0, 0, 0, 100]),
    max_attempts=st.sampled_from([1, 1, 2]),
    kept=st.booleans(),
    expires_us=st.sampled_from([None, None, None, 2 * SECOND]),
    arg=st.integers(0, 1),
).map(possible)
overlaps = st.sampled_from(["skip", "wait", "stop", "allow"])
some_endings = st.sampled_from(ENDINGS)


class Scheduled(ScheduleSteps):
    """All rules and scenarios, and those of recurring schedules."""

    @initialize()
    def begin_with_limits(self) -> None:
        """Without: most jobs of a walk are those of schedules."""
        self.job_limits = NO_LIMITS

    @initialize(first=st.lists(recurring, max_size=2, unique_by=lambda each: each.name))
    def begin_with_schedules(self, first: list[Recurring]) -> None:
        self.set(first)

    # -- people and code

    @rule(some=st.lists(recurring, min_size=1, max_size=2, unique_by=lambda each: each.name), cancels=st.booleans())
    def set_schedules(self, some: list[Recurring], cancels: bool) -> None:
        """The cancels of what they had planted may never be sent."""
        self.set(some, cancels=cancels)

    @rule(
        some=st.lists(recurring, max_size=2, unique_by=lambda each: each.name),
        writer=st.sampled_from(WRITERS),
        kept=st.lists(st.sampled_from(NAMES), max_size=1),
        late=st.sampled_from([False, False, False, True]),
        cancels=st.booleans(),
    )
    def declare_schedules(
        self, some: list[Recurring], writer: DeclaredBy, kept: list[str], late: bool, cancels: bool
    ) -> None:
        """Late: another process has declared since this one looked."""
        self.declare(some, by=writer, kept=kept, late=late, cancels=cancels)

    @rule(name=st.sampled_from(NAMES), cancels=st.booleans())
    def pause_schedule(self, name: str, cancels: bool) -> None:
        self.pause(name, cancels=cancels)

    @rule(name=st.sampled_from(NAMES))
    def resume_schedule(self, name: str) -> None:
        self.resume(name)

    @rule(names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True), cancels=st.booleans())
    def delete_schedules(self, names: list[str], cancels: bool) -> None:
        self.delete(names, cancels=cancels)

    @rule(pick=picks, number=st.integers(1, 2))
    def run_now(self, pick: int, number: int) -> None:
        if schedules := list(self.world.model.schedules.values()):
            self.run_by_hand(schedules[pick % len(schedules)].definition, number=number)

    # -- dispatchers

    @rule(pick=picks, unreadable=st.sampled_from([False, False, False, True]))
    def read_schedules(self, pick: int, unreadable: bool) -> None:
        """A dispatcher plans, and is slow to store what it planned."""
        planner = self.planned_by(pick)
        if unreadable:
            planner.planter.as_unreadable()

    @rule(pick=picks, most=st.sampled_from([1, 500]))
    def store_what_was_planned(self, pick: int, most: int) -> None:
        self.dispatchers[pick % 2].planter.store_planned(most)

    @rule(pick=picks, which=picks)
    def plant_again(self, pick: int, which: int) -> None:
        """The reply was lost, or a copy arrives late."""
        planter = self.dispatchers[pick % 2].planter
        if planter.sent:
            planter.send(planter.sent[-1 - which % min(3, len(planter.sent))])

    @rule(pick=picks, off=st.sampled_from([0, 0, 1, EVERY * SECOND, 3 * EVERY * SECOND]))
    def plant_in_time(self, pick: int, off: int) -> None:
        """Or late, at the next moment of a plan."""
        moments = [each.next_us for each in self.world.model.schedules.values() if each.next_us]
        self.world.advance_to(max(self.world.model.now, min(moments, default=0) + off))
        self.dispatchers[pick % 2].step()

    @precondition(lambda self: self.world.model.schedules)
    @rule(steps=st.integers(1, 5), want=st.integers(0, 2), ended=endings)
    def time_goes_on(self, steps: int, want: int, ended: list[OutcomeKind]) -> None:
        """From one event to the next, with a dispatcher and a worker."""
        for _ in range(steps):
            self.advance_to_next()
            self.settle_time()
            self.worker(0).exchange(want, endings=ended)
            self.check()

    # -- scenarios

    @rule(
        of=recurring,
        overlap=overlaps,
        number=st.integers(1, 3),
        ended=some_endings,
        together=st.booleans(),
        later=st.sampled_from(["settle", "lose", "settle"]),
    )
    def occurrences_come_while_a_job_runs(
        self, of: Recurring, overlap: str, number: int, ended: OutcomeKind, together: bool, later: str
    ) -> None:
        """Each of them is looked at by another worker, or all together; then the job ends, and what waited begins."""
        of = possible(replace(of, overlap=overlap, every=EVERY, jitter=None, ends=None, expires_us=None))
        worker, other = self.started(of), self.worker(0)
        for _ in range(number):
            self.next_occurrence(of.name)
            worker.heartbeat(worker.held, progress=0.5)
            if not together:
                other.exchange(3)
                other.exchange(0, endings=[OutcomeKind.SUCCEEDED] * len(other.held))
            self.check()
        other.exchange(3)
        self.check()
        if later == "settle":
            worker.heartbeat(worker.held)
            worker.exchange(0, endings=[ended] * len(worker.held))
        else:
            worker.restart()
            self.expire_leases()
        self.check()
        self.settle_time()
        for _ in range(2):
            other.exchange(2, endings=[OutcomeKind.SUCCEEDED] * len(other.held))
            self.check()
            self.sweep_limits()

    @rule(
        of=recurring,
        times=st.integers(1, 2),
        ended=st.sampled_from([OutcomeKind.STOPPED, OutcomeKind.SUCCEEDED, OutcomeKind.RETRY_REQUESTED]),
    )
    def the_next_job_stops_the_running_one(self, of: Recurring, times: int, ended: OutcomeKind) -> None:
        """Which reports its progress, and has the same time to end whatever comes meanwhile."""
        of = possible(replace(of, overlap="stop", every=EVERY, ends=None))
        worker, other = self.started(of), self.worker(0)
        for _ in range(times):
            worker.heartbeat(worker.held, progress=0.5)
            self.next_occurrence(of.name)
            other.exchange(2)
            self.check()
        worker.exchange(0, endings=[ended] * len(worker.held))
        self.check()
        self.settle_time()
        other.exchange(2, endings=[OutcomeKind.SUCCEEDED] * len(other.held))

    @rule(
        of=recurring,
        change=st.sampled_from(["set", "equal", "pause", "delete", "declare", "plant", "pause and resume", "begin"]),
        off=st.sampled_from([0, 0, EVERY * SECOND]),
        cancels=st.booleans(),
    )
    def a_schedule_changes_before_its_plan_is_stored(self, of: Recurring, change: str, off: int, cancels: bool) -> None:
        """What was planned for the earlier version, or for an earlier occurrence, is not stored."""
        self.set([of])
        if change == "begin":
            self.started(of)
        planner = self.planned_by(0)
        self.check()
        self.world.advance_to(self.world.model.now + off)
        if change == "set":
            self.set([replace(of, arg=2)], cancels=cancels)
        elif change == "equal":
            self.set([of])
        elif change == "pause":
            self.pause(of.name, cancels=cancels)
        elif change == "delete":
            self.delete([of.name], cancels=cancels)
        elif change == "declare":
            self.declare([replace(of, arg=3)], by=WRITERS[0], cancels=cancels)
        elif change == "pause and resume":
            self.pause(of.name, cancels=cancels)
            self.resume(of.name)
        else:
            self.dispatchers[1].step()
            self.worker(0).exchange(1)
        self.check()
        planner.planter.store_planned()
        self.check()
        self.look()
        self.check()
        if planner.planter.sent:
            planner.planter.send(planner.planter.sent[-1])

    @rule(of=recurring, changes=st.booleans(), off=st.sampled_from([-1, 0]))
    def a_dispatcher_cannot_read_a_schedule(self, of: Recurring, changes: bool, off: int) -> None:
        """It is marked, and another dispatcher looks at it a minute later, or as soon as it has changed."""
        self.set([of])
        planner = self.planned_by(0).planter
        planner.as_unreadable()
        planner.store_planned()
        self.check()
        if changes:
            self.set([replace(of, arg=6)])
        schedule = self.schedule_named(of.name)
        if schedule and schedule.next_us is not None:
            self.world.advance_to(max(self.world.model.now, schedule.next_us + off))
        self.look()

    @rule(
        of=recurring,
        ended=st.lists(st.sampled_from([OutcomeKind.REJECTED, OutcomeKind.SUCCEEDED]), min_size=2, max_size=4),
        after=st.sampled_from([1, 2, 3]),
        batch=st.booleans(),
    )
    def jobs_fail_in_a_row(self, of: Recurring, ended: list[OutcomeKind], after: int, batch: bool) -> None:
        """One after the other, or settled in one exchange; then it is resumed."""
        of = possible(replace(of, pause_after=after, ends=None, overlap="allow" if batch else of.overlap))
        self.set([of])
        worker = self.fresh_worker()
        for ending in ended:
            self.next_occurrence(of.name)
            worker.exchange(2)
            if not batch:
                worker.exchange(0, endings=[ending] * len(worker.held))
            self.check()
        worker.heartbeat(worker.held)
        worker.exchange(0, endings=[*ended, *ended])
        self.check()
        self.resume(of.name)

    @rule(
        of=recurring,
        catch_up=st.sampled_from(["last", "none", "none", "all"]),
        passed=st.integers(0, 12),
        last=st.sampled_from(["runs", "has run", "waits", "waits for another"]),
        taken=st.booleans(),
    )
    def nobody_plants_for_a_while(self, of: Recurring, catch_up: str, passed: int, last: str, taken: bool) -> None:
        """Then the missed occurrences get what `catch_up` says; a worker may take the job that waits before that."""
        overlap = of.overlap if catch_up != "all" or of.overlap == "wait" else "allow"
        of = possible(replace(of, every=EVERY, overlap=overlap, catch_up=catch_up))
        worker = self.started(of)
        if last in ("has run", "waits"):
            worker.exchange(0, endings=[OutcomeKind.SUCCEEDED] * len(worker.held))
        if last.startswith("waits"):
            self.next_occurrence(of.name)
        self.world.advance_to(self.world.model.now + max(0, passed * EVERY * SECOND // 2 - 1))
        self.check()
        if taken:
            worker.exchange(1)
        self.look()
        self.check()
        worker.exchange(8, endings=[OutcomeKind.SUCCEEDED] * len(worker.held))
        self.check()
        self.look()

    @rule(
        of=recurring,
        how=st.sampled_from(["cancel", "move", "reschedule", "claim", "pause queue", "requeue", "nothing"]),
        state=st.sampled_from(["scheduled", "ready", "parked", "running", "retried", "dropped"]),
        change=st.sampled_from(["set", "pause", "delete", "nothing", "resume", "pause and set"]),
        cancels=st.booleans(),
    )
    def something_happens_to_a_planted_job(
        self, of: Recurring, how: str, state: str, change: str, cancels: bool
    ) -> None:
        """And to its schedule, in any state of it; then what is left is served, and planted."""
        overlap = {"parked": "wait", "dropped": "skip"}.get(state, of.overlap)
        of = possible(replace(of, every=EVERY, ends=None, overlap=overlap, expires_us=None, max_attempts=2))
        raw_id, worker = self.in_state(of, state), self.worker(1)
        self.check()
        if change in ("pause", "resume", "pause and set"):
            self.pause(of.name, cancels=cancels)
        elif change == "delete":
            self.delete([of.name], cancels=cancels)
        if change in ("set", "pause and set"):
            self.set([replace(of, arg=4)], cancels=cancels)
        if change == "resume":
            self.resume(of.name)
        self.check()
        if how == "pause queue":
            assert self.world.operations.pause(of.queue, by="ann") == self.world.model.pause(of.queue)
        elif how == "claim" and raw_id:
            self.worker(0).claim_one(raw_id)
        elif how == "requeue":
            worker.exchange(0, endings=[OutcomeKind.REJECTED] * len(worker.held))
            for job in self.world.model.at(Place.DEAD)[-1:]:
                self.requeue_one(job.raw_id, job.score)
        elif raw_id and how != "nothing":
            self.change(how, raw_id, queue=FAIR, when=("delay", 3 * SECOND))
        self.check()
        for _ in range(2):
            self.settle_time()
            self.worker(0).exchange(3, endings=[OutcomeKind.SUCCEEDED] * len(self.worker(0).held))
            self.check()
            self.advance_to_next()

    @rule(of=recurring, number=st.sampled_from([2, 19, 21]), ended=st.sampled_from(["cancel", "expire", "run"]))
    def many_jobs_are_run_by_hand(self, of: Recurring, number: int, ended: str) -> None:
        """The last twenty outcomes are kept."""
        self.set([of])
        definition = self.definition(of)
        if definition.id not in self.world.model.schedules:
            return
        raw_ids = self.run_by_hand(definition, number=number)
        if ended == "cancel":
            for raw_id in raw_ids:
                self.change("cancel", raw_id)
        self.world.advance_to(self.world.model.now + (3 * SECOND if ended == "expire" else 1_000))
        self.worker(0).exchange(3)
        self.world.advance_to(self.world.model.now + 2_500_000)
        self.worker(0).exchange(1, endings=[OutcomeKind.SUCCEEDED] * len(self.worker(0).held))

    @rule(
        some=st.lists(recurring, min_size=1, max_size=3, unique_by=lambda each: each.name),
        left=st.integers(0, 2),
        before=st.booleans(),
        between=st.sampled_from(["nothing", "plant", "run", "pause", "set"]),
        cancels=st.booleans(),
    )
    def declarations_change(self, some: list[Recurring], left: int, before: bool, between: str, cancels: bool) -> None:
        """Some are not declared any more, one is changed; then the older code wins again, and a late one does not."""
        self.set(some[:before])
        self.declare(some, by=WRITERS[0], cancels=cancels)
        self.check()
        if between == "plant":
            self.look()
        elif between == "run":
            self.settle_time()
            self.next_occurrence(some[0].name)
            self.worker(0).exchange(2)
        elif between == "pause":
            self.pause(some[0].name, cancels=cancels)
        elif between == "set":
            self.set([replace(some[-1], arg=5)])
        self.check()
        changed = [replace(each, arg=1 - each.arg) for each in some[:1]] + some[1:]
        self.declare(changed[:left], by=WRITERS[1], kept=[each.name for each in some[2:]], cancels=cancels)
        self.check()
        self.declare(some, by=WRITERS[0], late=True)
        self.delete([some[0].name])
        self.declare(some, by=WRITERS[0], cancels=cancels)

    def teardown(self) -> None:
        """Nobody plants any more; jobs that wait are dropped, and all that run end."""
        if sys.exc_info()[0] is not None:
            return
        for schedule in self.world.model.schedules.values():
            self.pause(schedule.definition.schedule.name, cancels=False)
        self.check()
        super().teardown()
        assert not any(schedule.running for schedule in self.world.model.schedules.values())


#: The other machines walk these. They have nothing to do with schedules, and take most of the time.
_OTHERS = """
a_crashed_job_of_a_tenant_is_set_aside a_running_job_takes_a_slot_beside_others
a_served_tenant_has_no_turn_for_a_while an_unused_queue_is_removed_and_comes_back
calls_are_throttled claim_behind_a_pop_is_confirmed dead_letter_dies_again_before_somebody_decides
dead_letter_is_requeued_while_its_key_is_taken dead_letters_are_removed end_spread give_back_slot
job_that_was_asked_to_stop_reports_progress jobs_are_promoted_at_their_times jobs_are_run_before_their_time
jobs_of_a_rate_come_back jobs_replace_others_beside_a_full_tenant one_job_fails_again_and_again operation_races_claim
queues_are_served_in_their_order released_jobs_notify_again reply_to_an_enqueue_is_lost requeue_evenly
scripts_are_flushed
something_happens_to_a_job_that_waits spread_is_continued take_slot task_backs_off tenants_take_turns_under_a_limit
"""
for _name in _OTHERS.split():
    assert hasattr(Limited, _name)
    setattr(Scheduled, _name, None)
