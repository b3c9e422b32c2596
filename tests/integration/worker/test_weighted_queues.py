"""Weighted queues: the shares of a real worker's claims on a real Redis, in the order of the claims."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

import pytest

from django_delayq import get_store
from django_delayq.control.queues import queue
from django_delayq.exceptions import StoreUnavailable
from django_delayq.job.job import Claim
from django_delayq.store.claims import ExchangeReply, ExchangeRequest
from django_delayq.worker.claiming.queue_weights import MAX_BATCH
from django_delayq.worker.exchange_session import InFlight
from django_delayq.worker.pools.claim_queue import PoolClient
from django_delayq.worker.pools.recovery import RecoveryRunner
from django_delayq.worker.pools.threads import ThreadPool
from django_delayq.worker.worker import Worker
from tests.sample_app import tasks
from tests.shares import furthest, while_all_have_jobs
from tests.stepped_worker import await_notification, step_until_idle, stepped_worker
from tests.subprocesses import until

SHARES = {"mail": 6, "bulk": 1}
#: The seconds after which a worker gives back a claim that got no slot.
LONGEST_QUEUED = "django_delayq.worker.worker._LONGEST_QUEUED"


class NotingPool(ThreadPool):
    """A pool that notes the queue of each claim."""

    def __init__(self, size: int) -> None:
        super().__init__(size, recovery=RecoveryRunner())
        self.claimed: list[str] = []

    def submit(self, claims: Sequence[Claim], owner: PoolClient) -> None:
        self.claimed += [claim.queue for claim in claims]
        super().submit(claims, owner)


@pytest.fixture
def make_worker(
    delayq_settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Worker]]:
    """Make a worker of weighted queues, SHARES by default, with so many threads."""
    monkeypatch.setenv("DELAYQ_TEST_LEDGER", str(tmp_path / "ledger"))
    with ExitStack() as made:

        def make(size: int = 1, weights: dict[str, int] = SHARES, **options: Any) -> Worker:
            config = replace(
                get_store().config.worker, queues=tuple(weights), weights=tuple(weights.values()), **options
            )
            return made.enter_context(stepped_worker(config=config, pool=NotingPool(size)))

        yield make


@pytest.fixture
def no_claim_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let claims wait for a slot forever: on a slow machine they wait in vain, are given back, and come again."""
    monkeypatch.setattr(LONGEST_QUEUED, inf)


def enqueue(**counts: int) -> None:
    """Enqueue so many jobs that do nothing into each queue."""
    for name, number in counts.items():
        tasks.noop.using(queue=name).enqueue_many([()] * number)


def claimed(worker: Worker) -> list[str]:
    """Return the queue of each claim so far."""
    assert isinstance(worker._pool, NotingPool)
    return worker._pool.claimed


def run(worker: Worker, jobs: int) -> list[str]:
    """Step until the worker has claimed at least so many more jobs; return the queue of each."""
    order, before = claimed(worker), len(claimed(worker))

    def steps() -> bool:
        while len(order) < before + jobs:
            if worker.step() != 0:
                return False
        return True

    until(steps, what=f"{jobs} claims")
    return order[before:]


@pytest.mark.usefixtures("no_claim_is_given_back")
@pytest.mark.parametrize("weights", [SHARES, {"mail": 1, "bulk": 1}, {"mail": 3, "bulk": 2, "reports": 1}])
@pytest.mark.parametrize("size", [1, 8])
def test_full_queues_get_their_shares_and_all_jobs_run(
    size: int, weights: dict[str, int], make_worker: Callable[..., Worker]
) -> None:
    enqueue(**dict.fromkeys(weights, 250))
    order = run(make_worker(size, weights), 250 * len(weights))
    assert furthest(while_all_have_jobs(order, weights), weights, window=100) <= MAX_BATCH
    assert [order.count(name) for name in weights] == [250] * len(weights)


def test_a_worker_that_claims_one_job_at_a_time_alternates(make_worker: Callable[..., Worker]) -> None:
    worker = make_worker()
    # After long jobs it claims no more than it has free slots; 70 short ones do not change that yet.
    worker._prefetch.observe(10**9)
    enqueue(mail=70, bulk=70)
    assert run(worker, 70)[:70] == ["mail", "mail", "mail", "bulk", "mail", "mail", "mail"] * 10


def test_an_exchange_that_wants_no_claims_shows_no_empty_queue(make_worker: Callable[..., Worker]) -> None:
    worker = make_worker()
    worker._prefetch.observe(10**9)
    enqueue(mail=10, bulk=10)
    assert run(worker, 3) == ["mail"] * 3
    worker.quiet(True)
    until(lambda: worker.step() != 0 and not worker._held, what="the last job to be settled")
    worker.quiet(False)
    assert run(worker, 1) == ["bulk"]


@pytest.mark.parametrize("empty", list(SHARES))
def test_an_empty_queue_leaves_its_share_to_the_other_and_gains_none(
    empty: str, make_worker: Callable[..., Worker]
) -> None:
    (other,) = SHARES.keys() - {empty}
    worker = make_worker(4)
    enqueue(**{other: 600})
    assert set(run(worker, 300)) == {other}
    enqueue(**{empty: 250})
    order = run(worker, 500)
    assert furthest(while_all_have_jobs(order, SHARES), SHARES, window=100) <= MAX_BATCH


def test_a_paused_queue_counts_as_empty(make_worker: Callable[..., Worker]) -> None:
    worker = make_worker()
    enqueue(mail=300, bulk=300)
    queue("mail").pause()
    order = run(worker, 100)
    assert set(order) == {"bulk"}
    queue("mail").resume()
    order = run(worker, 200)
    assert furthest(while_all_have_jobs(order, SHARES), SHARES, window=100) <= MAX_BATCH


def test_each_queue_wakes_an_idle_worker_and_its_claim_behind_the_pop_counts(
    make_worker: Callable[..., Worker],
) -> None:
    worker = make_worker()
    step_until_idle(worker)
    for name in ("bulk", "mail", "bulk"):
        until(lambda: worker.step() != 0 and not worker._held, what="the last job to end")
        worker.listen()
        assert worker._session.in_flight is InFlight.BLOCKING
        enqueue(**{name: 1})
        await_notification(worker)
        until(lambda: worker.step() != 0, what="the reply")
        assert claimed(worker)[-1] == name


def test_jobs_that_come_while_a_worker_waits_get_their_shares(make_worker: Callable[..., Worker]) -> None:
    worker = make_worker()
    step_until_idle(worker)
    worker.listen()
    # The claim behind the pop has an order that was fixed before any of these jobs came.
    enqueue(bulk=150, mail=250)
    await_notification(worker)
    # Maybe a few more: on a slow machine claims wait in vain, are given back, and come again.
    order = run(worker, 400)
    assert furthest(while_all_have_jobs(order, SHARES), SHARES, window=100) <= MAX_BATCH


def test_claims_that_waited_in_vain_behind_a_long_job_do_not_count(
    make_worker: Callable[..., Worker], gate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make_worker()
    # However slow the machine is, jobs count as short, and claims wait in vain behind the long one only.
    worker._prefetch.observe(1)
    with monkeypatch.context() as patch:
        patch.setattr(worker._prefetch, "observe", lambda *_: None)
        patch.setattr(LONGEST_QUEUED, inf)
        enqueue(mail=300)
        run(worker, 64)
        tasks.wait_for.using(queue="bulk").enqueue(str(gate))
        enqueue(bulk=100)
        # The other jobs write nothing into it.
        until(lambda: worker.step() != 0 and (tmp_path / "ledger").exists(), what="the long job to begin")
    until(
        lambda: worker.step() != 0 and worker._pool.held == 1 and not worker._outcomes,
        what="the claims behind it to be given back",
    )
    # If they counted, mail would now get six times as many claims before the next one of bulk.
    assert claimed(worker).count("bulk") > 4
    gate.touch()
    assert run(worker, 28)[:28].count("bulk") >= 3


@pytest.mark.usefixtures("no_claim_is_given_back")
def test_a_reply_that_was_lost_counts_once(make_worker: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch) -> None:
    worker = make_worker(8)
    claims, numbers = worker._session._claims, count(1)
    exchange = claims.settle_and_claim

    def lose_every_third_reply(request: ExchangeRequest) -> ExchangeReply:
        reply = exchange(request)
        if next(numbers) % 3 == 0:
            raise StoreUnavailable("lost")
        return reply

    monkeypatch.setattr(claims, "settle_and_claim", lose_every_third_reply)
    monkeypatch.setattr(worker, "step", lambda step=worker.step: retried(step))
    enqueue(mail=250, bulk=250)
    order = run(worker, 500)
    assert next(numbers) > 30
    assert furthest(while_all_have_jobs(order, SHARES), SHARES, window=100) <= MAX_BATCH
    assert order.count("mail") == order.count("bulk") == 250


def retried(step: Callable[[], float | None]) -> float | None:
    """Step, and again after an error, as a service does."""
    try:
        return step()
    except StoreUnavailable:
        return step()


def test_two_workers_keep_shares_of_their_own(make_worker: Callable[..., Worker]) -> None:
    workers = [make_worker(2), make_worker(2)]
    enqueue(mail=500, bulk=500)
    together: list[str] = []
    while together.count("mail") < 400:
        together += [each for worker in workers for each in run(worker, 20)]
    for worker in workers:
        assert furthest(claimed(worker), SHARES, window=100) <= MAX_BATCH
    assert furthest(together, SHARES, window=100) <= 2 * MAX_BATCH
