"""Limited: the machine with limits: every rule and scenario, with jobs under limits, and rules of limits alone."""

import sys
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from django_delayq.conf.limit_rules import LimitRule
from django_delayq.job.job import LimitUse
from django_delayq.job.outcome import OutcomeKind
from django_delayq.store.digests import limit_digest
from tests.stateful.machine.actors import FAIR, QUEUES, World
from tests.stateful.machine.scenarios import Scenarios
from tests.stateful.machine.strategies import ENDINGS, NO_LIMITS, SECOND, JobLimits, Request, picks, requests
from tests.stateful.model.limits import TASK
from tests.stateful.model.values import Place

#: Three a second are no whole number of microseconds.
RULES = {
    "rate": LimitRule(interval_us=SECOND / 3, burst=2),
    "one": LimitRule(max_running=1),
    "two": LimitRule(max_running=2),
    "both": LimitRule(interval_us=SECOND / 10, burst=3, max_running=2),
}
OTHER_RULES = [
    RULES,
    RULES,
    RULES | {"one": RULES["two"], "rate": RULES["both"]},
    RULES | {"two": RULES["one"], "both": LimitRule(interval_us=2.0 * SECOND, burst=2)},
    {"rate": LimitRule(interval_us=SECOND / 2, burst=4)},
    # What a job costs lasts longer than a lease.
    {"rate": LimitRule(interval_us=20.0 * SECOND, burst=2)},
]
RATE, ONE, BOTH = LimitUse("rate"), LimitUse("one"), LimitUse("both")
USES = [RATE, LimitUse("rate", "a"), ONE, LimitUse("one", "a"), LimitUse("two"), BOTH, LimitUse("gone")]
uses = st.lists(st.sampled_from(USES), min_size=1, max_size=3, unique=True).map(tuple)
limited = st.builds(JobLimits, uses=uses, cost=st.sampled_from([1, 1, 2]), drops=st.sampled_from([False, False, True]))
all_limits = st.sampled_from(USES)


class Limited(Scenarios):
    """All rules and scenarios, and those of limits."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.set_limits(RULES)

    @initialize(limits=limited)
    def begin_with_limits(self, limits: JobLimits) -> None:
        self.job_limits = limits

    # -- rules

    @rule(limits=limited)
    def jobs_have_limits(self, limits: JobLimits) -> None:
        """Also those of every scenario, until the next change."""
        self.job_limits = limits

    @rule()
    def jobs_have_no_limits(self) -> None:
        self.job_limits = NO_LIMITS

    @rule(rules=st.sampled_from(OTHER_RULES))
    def rules_change(self, rules: dict[str, LimitRule]) -> None:
        self.set_limits(rules)

    @rule(use=all_limits, length_us=st.sampled_from([1, SECOND, 31 * SECOND]))
    def task_backs_off(self, use: LimitUse, length_us: int) -> None:
        self.world.operations.limits.back_off(use, length_us)
        self.world.model.back_off(limit_digest(*use), length_us)

    @rule(paused=st.booleans())
    def pause_or_resume_task(self, paused: bool) -> None:
        self.pause_task(paused)

    @rule(pick=picks, use=all_limits, cost=st.sampled_from([1, 2]), outside=st.booleans())
    def take_slot(self, pick: int, use: LimitUse, cost: int, outside: bool) -> None:
        """Of a job that runs, or ran before; or of code outside jobs."""
        held = self.worker(pick).held
        running = [claim.lease for claim in held if not claim.is_dropped]
        if outside or running:
            lease = (pick % 3).to_bytes(30) if outside else running[pick % len(running)]
            self.take(use, lease, cost=cost, length_us=5 * SECOND if outside else None)

    @rule(pick=picks, use=all_limits, outside=st.booleans())
    def give_back_slot(self, pick: int, use: LimitUse, outside: bool) -> None:
        leases = [claim.lease for claim in self.worker(pick).held]
        if outside:
            limit = limit_digest(*use)
            leases = sorted(lease for held, lease in self.world.model.limits.holders if held == limit) or [bytes(30)]
        if leases:
            self.give_back(use, leases[pick % len(leases)])

    @rule(pick=picks, want=st.integers(1, 4), limited=st.integers(0, 2))
    def exchange_with_few_slots(self, pick: int, want: int, limited: int) -> None:
        """A worker that has less room for jobs with limits."""
        self.worker(pick).exchange(want, want_limited=limited)

    @rule()
    def sweep(self) -> None:
        self.sweep_to_the_end()

    # -- scenarios

    @rule(
        limits=limited,
        batch=st.lists(requests, min_size=2, max_size=5),
        how=st.sampled_from(["cancel", "reschedule", "move", "replace", "claim", "expire", "nothing"]),
        of=st.sampled_from([Place.PARKED, Place.READY]),
        ended=st.sampled_from([*ENDINGS, OutcomeKind.PAUSED]),
    )
    def something_happens_to_a_job_that_waits(
        self, limits: JobLimits, batch: list[Request], how: str, of: Place, ended: OutcomeKind
    ) -> None:
        """It is parked, or was let in; then others end, and the next ones are let in."""
        self.job_limits, worker = replace(limits, drops=False), self.fresh_worker()
        key = "w" if how == "replace" else None
        self.enqueue([replace(each, when=("now", 0), large=False, key=None) for each in batch])
        self.enqueue([Request(queue=batch[0].queue, key=key)])
        worker.exchange(8)
        if of is Place.READY:
            worker.exchange(0, endings=[ended] * len(worker.held))
            self.sweep_limits()
        self.check()
        jobs = [job for job in self.world.model.at(of) if of is Place.PARKED or job.let_in]
        raw_id = jobs[-1].raw_id if jobs else None
        if how == "replace":
            self.enqueue([Request(queue=QUEUES[0], key="w", unique="replace")])
        elif how == "claim" and raw_id:
            self.worker(0).claim_one(raw_id)
        elif how == "expire":
            self.expire_leases()
        elif raw_id and how != "nothing":
            self.change(how, raw_id, queue=FAIR)
        self.check()
        worker.exchange(3, endings=[ended] * len(worker.held))
        self.check()
        self.sweep_to_the_end()
        worker.exchange(3)

    @rule(ended=st.sampled_from([OutcomeKind.UNSTARTED, OutcomeKind.SUCCEEDED, None]), us=st.sampled_from([0, SECOND]))
    def jobs_of_a_rate_come_back(self, ended: OutcomeKind | None, us: int) -> None:
        """One that did not begin gives back what it cost, but only what has not passed."""
        self.job_limits, worker = JobLimits(uses=(RATE,)), self.fresh_worker()
        self.enqueue([Request(priority=100)] * 3)
        worker.exchange(1, blocking=worker.remembered)
        self.world.advance_to(self.world.model.now + us)
        self.sweep_limits()
        self.worker(0).exchange(2)
        self.check()
        if ended:
            worker.exchange(0, endings=[ended] * len(worker.held))
        else:
            self.expire_leases()
        self.sweep_limits()
        self.worker(0).exchange(3)

    @rule(use=all_limits, cost=st.sampled_from([1, 2]), others=st.integers(0, 3), late=st.booleans())
    def a_running_job_takes_a_slot_beside_others(self, use: LimitUse, cost: int, others: int, late: bool) -> None:
        """Until the limit is closed; it gives its slot back before it ends. Late: it has ended, and takes none."""
        worker = self.fresh_worker()
        self.enqueue([Request()])
        worker.exchange(3)
        for number in range(others):
            self.take(use, number.to_bytes(30), cost=1, length_us=5 * SECOND)
        self.check()
        running = [claim for claim in worker.held if not claim.is_dropped][:1]
        if late:
            worker.exchange(0, endings=[OutcomeKind.SUCCEEDED] * len(worker.held))
        for claim in running:
            self.take(use, claim.lease, cost=cost, length_us=None)
            self.check()
            self.give_back(use, claim.lease)
        self.check()

    @rule(limits=limited, batch=st.lists(requests, min_size=2, max_size=4), ahead=st.booleans())
    def jobs_of_a_paused_task_wait(self, limits: JobLimits, batch: list[Request], ahead: bool) -> None:
        """They are parked when a worker settles them, and let in when the task is resumed."""
        self.job_limits, worker = limits, self.fresh_worker()
        raw_ids = self.enqueue([replace(each, key=None) for each in batch])
        self.pause_task(True)
        if ahead:
            worker.claim_one(raw_ids[0])
        worker.exchange(4)
        worker.exchange(0, endings=[OutcomeKind.PAUSED] * len(worker.held))
        self.check()
        self.sweep_limits()
        self.pause_task(False)
        self.sweep_limits()
        worker.exchange(4)

    @rule(limits=limited, tenants=st.lists(st.sampled_from(["a", "b", None]), min_size=3, max_size=6))
    def tenants_take_turns_under_a_limit(self, limits: JobLimits, tenants: list[str | None]) -> None:
        """Whoever ends, the next job is that of the next tenant."""
        self.job_limits, worker = replace(limits, drops=False), self.fresh_worker()
        self.enqueue([Request(queue=FAIR, tenant=tenant) for tenant in tenants])
        for _ in tenants:
            worker.exchange(1, queues=[FAIR], endings=[OutcomeKind.SUCCEEDED] * len(worker.held))
            self.sweep_limits()
            self.check()
            self.advance_to_next()

    @rule(limits=limited, off=st.sampled_from([0, 1]))
    def a_crashed_job_waits_for_a_limit(self, limits: JobLimits, off: int) -> None:
        """It is parked when a process for it is free; until then it is set aside."""
        self.job_limits, worker = replace(limits, drops=False), self.fresh_worker()
        raw_ids = self.enqueue([Request(priority=100)] * 2)
        worker.exchange(2)
        for raw_id in raw_ids[: 1 + off]:
            worker.claim_one(raw_id)
        worker.exchange(0, endings=[OutcomeKind.CRASHED] * len(worker.held))
        self.world.advance_to(self.world.model.now + 5 * SECOND)
        self.look()
        self.enqueue([Request(priority=100)])
        self.worker(0).exchange(3, may_recover=False)
        self.check()
        self.worker(0).exchange(3)
        self.sweep_limits()
        self.worker(0).exchange(3)

    # -- steps

    def set_limits(self, rules: dict[str, LimitRule]) -> None:
        assert self.world.operations.limits.set_limits(rules.items()) == self.world.model.set_limits(rules.items())

    def pause_task(self, paused: bool) -> None:
        operations, model = self.world.operations.limits, self.world.model
        if paused:
            assert operations.pause_task(TASK, by="ann") == model.pause_task()
        else:
            assert operations.resume_task(TASK) == model.resume_task()

    def take(self, use: LimitUse, lease: bytes, **options: Any) -> None:
        word, wait_us = self.world.operations.limits.take_slot(use, lease=lease, **options)
        assert (word.value, wait_us) == self.world.model.take_slot(limit_digest(*use), lease, **options)

    def give_back(self, use: LimitUse, lease: bytes) -> None:
        found = self.world.operations.limits.give_back_slot(use, lease=lease)
        assert found == self.world.model.give_back_slot(limit_digest(*use), lease)

    def sweep_limits(self) -> None:
        """Let the dispatcher look at all limits at which it has to look by now."""
        for _ in range(50):
            if not self.world.model.limits_to_let_in()[0]:
                return
            self.look()
        raise AssertionError("there are always limits to look at")

    def sweep_to_the_end(self) -> None:
        """Let the dispatcher look at each limit once more."""
        model = self.world.model
        last = model.now + self.world.store.config.dispatcher.sweep_us
        while moments := [moment for moment in model.limits.open.values() if model.now < moment <= last]:
            self.world.advance_to(min(moments))
            self.sweep_limits()
        self.world.advance_to(last)
        self.sweep_limits()

    def teardown(self) -> None:
        """Nothing of limits remains when all jobs have ended."""
        if sys.exc_info()[0] is not None:
            return
        super().teardown()
        model, keys = self.world.model, self.world.keys
        for _ in range(20):
            self.world.advance_to(model.now + 60 * SECOND)
            self.look()
        self.check()
        for noun in ("limit_jobs", "limit_times", "limit_turns", "next_let_in", "waiting_for", "claim_limits"):
            assert not self.world.client.exists(keys(noun)), f"{noun} remains"
