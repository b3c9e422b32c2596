"""Tenants: rare orders of events of tenants and fair queues as one rule each."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from django_delayq.job.outcome import OutcomeKind
from tests.stateful.machine.actors import FAIR, QUEUES
from tests.stateful.machine.rules import Rules
from tests.stateful.machine.strategies import Request
from tests.stateful.model.values import Place

#: In the queue QUEUES[2] two jobs of a tenant may wait.
replacing = st.builds(
    Request,
    queue=st.sampled_from([QUEUES[2], QUEUES[2], FAIR]),
    key=st.sampled_from(["k", "l", "m"]),
    unique=st.just("replace"),
    tenant=st.just("a"),
)


class Tenants(Rules):
    """Scenarios of tenants."""

    @rule(batch=st.lists(replacing, min_size=3, max_size=5))
    def jobs_replace_others_beside_a_full_tenant(self, batch: list[Request]) -> None:
        """One that replaces a job of its own queue adds none; one that takes another queue's place does."""
        for request in batch:
            self.enqueue([request])
            self.check()

    @rule(
        how=st.sampled_from(["cancel", "pause", "claim"]),
        others=st.integers(0, 2),
        settled=st.sampled_from([OutcomeKind.UNSTARTED, OutcomeKind.SUCCEEDED, None]),
    )
    def a_served_tenant_has_no_turn_for_a_while(self, how: str, others: int, settled: OutcomeKind | None) -> None:
        """It keeps the tag of what it was served; a job that never had a turn gives none back."""
        worker, workers, model = self.fresh_worker(), self.world.operations.workers, self.world.model
        raw_ids = self.enqueue([Request(queue=FAIR, tenant="a")] * 3)
        self.enqueue([Request(queue=FAIR, tenant="b")] * others)
        worker.exchange(0)
        worker.exchange(1, queues=[FAIR], may_recover=False, blocking=True)
        self.check()
        waiting = [raw_id for raw_id in raw_ids if raw_id in model.jobs and model.jobs[raw_id].waits]
        if how == "cancel":
            for raw_id in waiting:
                self.change("cancel", raw_id)
        elif how == "pause":
            assert workers.pause_tenant(FAIR, "a", by="ann") == model.pause_tenant(FAIR, "a")
            self.enqueue([Request(queue=FAIR, tenant="a")])
        elif waiting:
            worker.claim_one(waiting[-1])
        self.check()
        if settled:
            worker.exchange(0, endings=[settled] * len(worker.held))
        else:
            # Nobody confirmed the claims, so no attempt is counted.
            worker.restart()
            self.expire_leases()
        self.check()
        if how == "pause":
            assert workers.resume_tenant(FAIR, "a") == model.resume_tenant(FAIR, "a")
        self.enqueue([Request(queue=FAIR, tenant="a")])
        worker.exchange(2, queues=[FAIR])

    @rule(want=st.integers(1, 3), between=st.sampled_from(["a", "b"]))
    def a_crashed_job_of_a_tenant_is_set_aside(self, want: int, between: str) -> None:
        """It pays nothing, and may have been the last job of its flow."""
        worker = self.fresh_worker()
        crashed = self.enqueue([Request(queue=FAIR, tenant="a")])[0]
        worker.claim_one(crashed)
        worker.exchange(0, endings=[OutcomeKind.CRASHED] * len(worker.held))
        self.enqueue([Request(queue=FAIR, tenant=between)])
        if job := self.world.model.jobs.get(crashed):
            self.world.advance_to(max(self.world.model.now, job.score if job.place is Place.SCHEDULED else 0))
        self.dispatchers[0].step()
        self.check()
        worker.exchange(want, queues=[FAIR], may_recover=False)
