"""Tenants: rare orders of events of tenants and fair queues as one rule each."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from django_delayq.job.outcome import OutcomeKind
from tests.stateful.machine.actors import FAIR, QUEUES
from tests.stateful.machine.rules import Rules
from tests.stateful.machine.strategies import Request

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
        ending=st.sampled_from(["cancel", "pause", "claim"]),
        others=st.integers(0, 2),
        settled=st.sampled_from([OutcomeKind.UNSTARTED, OutcomeKind.INTERRUPTED, OutcomeKind.SUCCEEDED]),
    )
    def a_served_tenant_has_no_turn_for_a_while(self, ending: str, others: int, settled: OutcomeKind) -> None:
        """It keeps the tag of what it was served; a job that never had a turn gives none back."""
        worker, workers, model = self.worker(1), self.world.operations.workers, self.world.model
        worker.restart()
        raw_ids = self.enqueue([Request(queue=FAIR, tenant="a")] * 3)
        self.enqueue([Request(queue=FAIR, tenant="b")] * others)
        worker.exchange(1, queues=[FAIR], may_recover=False)
        self.check()
        waiting = [raw_id for raw_id in raw_ids if raw_id in model.jobs and model.jobs[raw_id].waits]
        if ending == "cancel":
            for raw_id in waiting:
                self.change("cancel", raw_id)
        elif ending == "pause":
            assert workers.pause_tenant(FAIR, "a", by="ann") == model.pause_tenant(FAIR, "a")
        elif waiting:
            worker.claim_one(waiting[-1])
        self.check()
        worker.exchange(0, endings=[settled] * len(worker.held))
        self.check()
        if ending == "pause":
            assert workers.resume_tenant(FAIR, "a") == model.resume_tenant(FAIR, "a")
        self.enqueue([Request(queue=FAIR, tenant="a")])
        worker.exchange(2, queues=[FAIR])
