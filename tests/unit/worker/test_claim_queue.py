"""Claim queue: which claims may begin, and that each ends once."""

import pytest

from django_delayq.clock import SECOND_US
from django_delayq.job.ids import next_id
from django_delayq.job.job import Claim, Job
from django_delayq.job.outcome import UNSTARTED, Outcome, OutcomeKind
from django_delayq.worker.pools.claim_queue import ClaimQueue, Entry, Seat
from tests.factories import claim_for, numbered

SUCCEEDED = Outcome(kind=OutcomeKind.SUCCEEDED)


class Owner:
    """A client that lets each claim begin and keeps the outcomes."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []

    def may_begin(self, claim: Claim) -> bool:
        return True

    def finished(self, claim: Claim, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


@pytest.fixture
def owner() -> Owner:
    return Owner()


def limited(hard_timeout_us: int | None) -> Claim:
    """Return the claim of a job with this hard limit."""
    return claim_for(Job(raw_id=next_id(), shard=0, task="shop.noop", queue="mail", hard_timeout_us=hard_timeout_us))


def taken(claims: ClaimQueue, owner: Owner) -> tuple[Seat, Entry]:
    """Add a claim and take it out."""
    claims.put([numbered(1)], owner)
    entry = claims.take(seat := Seat())
    assert entry is not None
    return seat, entry


def test_nothing_begins_once_the_queue_is_closed(owner: Owner) -> None:
    claims = ClaimQueue()
    _, entry = taken(claims, owner)
    claims.close()
    assert not claims.begin(entry)
    assert not claims.has_begun(entry.claim)


def test_a_second_outcome_of_a_claim_is_ignored(owner: Owner) -> None:
    claims = ClaimQueue()
    _, entry = taken(claims, owner)
    claims.end(entry, SUCCEEDED)
    claims.end(entry, UNSTARTED)
    assert owner.outcomes == [SUCCEEDED] and claims.held == 0


@pytest.mark.parametrize("begun", [True, False])
def test_a_claim_that_an_exception_left_in_a_seat_has_failed_if_it_had_begun(owner: Owner, begun: bool) -> None:
    claims = ClaimQueue()
    seat, entry = taken(claims, owner)
    assert not begun or claims.begin(entry)
    claims.recover(seat, ValueError("raised in the thread"))
    assert [outcome.kind for outcome in owner.outcomes] == [OutcomeKind.FAILED if begun else OutcomeKind.UNSTARTED]
    assert owner.outcomes[0].began == entry.began
    assert seat.entry is None


def test_hard_limits_count_from_the_begin_of_a_claim(owner: Owner) -> None:
    now = 100.0
    claims = ClaimQueue(clock=lambda: now)
    claims.put([limited(limit) for limit in (SECOND_US, None, 1)], owner)
    now += 50.0
    for _ in range(2):
        entry = claims.take(Seat())
        assert entry is not None and claims.begin(entry)
    now += 11.0
    assert claims.overrun(10.0) == 0
    now += 0.1
    assert (claims.overrun(10.0), claims.overrun(11.0)) == (1, 0)
