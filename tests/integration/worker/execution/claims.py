"""Claims and functions that the tests of execution run."""

from collections.abc import Callable
from time import monotonic
from typing import Any

from django_delayq.clock import lease_time
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.ids import next_id
from django_delayq.job.job import Claim, Job
from django_delayq.job.outcome import Outcome
from tests.factories import claim_for

Run = Callable[..., Outcome]
#: Seconds; far more than any of these tests needs. No test measures how long it took.
PATIENCE = 30.0
SUSPECT = AttemptHistory(ended=1, crash_suspected=True)


def claim_of(
    name: str, *args: Any, attempts: AttemptHistory | None = None, claimed_us: int = 1_893_456_000_124_000, **facts: Any
) -> Claim:
    """Return the claim of a job, as a reply of `settle_and_claim` would contain it."""
    options = {"queue": "mail", **facts}
    job = Job(raw_id=next_id(), shard=0, task=name, args=list(args), **options)
    moments = {
        "rank": 100 * 2**45,
        "due_us": 1_893_456_000_123_000,
        "claimed_us": claimed_us,
        "sent_at": lease_time(),
        "received_at": monotonic(),
    }
    return claim_for(job, attempts=attempts or AttemptHistory(), **moments)


def spin() -> None:
    give_up = monotonic() + PATIENCE
    while monotonic() < give_up:
        pass


def raises(error: BaseException) -> Callable[[], None]:
    def func() -> None:
        raise error

    return func
