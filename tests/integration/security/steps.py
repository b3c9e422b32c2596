"""Steps of the tests of signing and encryption."""

from django_delayq.job.job import Claim
from django_delayq.job.outcome import Outcome
from django_delayq.worker.execution import run
from django_delayq.worker.settlement import decide_settlement
from tests.shard_apis import ShardApis


def take(apis: ShardApis, queue: str = "default") -> tuple[Claim, Outcome]:
    """Claim one job, run it, and settle it as a worker would; a retry is due at once."""
    worker = apis.worker()
    [claim] = worker.take(1, queue).claims
    outcome = run(claim)
    assert not worker.take(0, queue, settle=[decide_settlement(claim, outcome, worker="w", jitter=0)]).lost
    apis.promote()
    return claim, outcome
