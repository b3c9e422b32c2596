"""One outcome per lease: a job ends once, however often a worker or dispatchers report its end."""

import itertools
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from django_delayq import RetryPolicy, get_job
from django_delayq.dispatcher.dispatcher import Dispatcher
from django_delayq.exceptions import StoreUnavailable
from django_delayq.job.job import Claim
from django_delayq.job.outcome import Action
from django_delayq.processes.emitter import emit_now
from django_delayq.signals import job_dead_lettered
from django_delayq.store.claims import ExchangeReply
from django_delayq.store.promotion import Promotion, Reclaim
from django_delayq.worker.exchange_session import InFlight
from django_delayq.worker.pools.claim_queue import PoolClient
from django_delayq.worker.pools.recovery import RecoveryRunner
from django_delayq.worker.pools.threads import ThreadPool
from django_delayq.worker.worker import Worker
from tests.sample_app import tasks
from tests.shard_apis import ShardApis, settlement
from tests.stepped_worker import WorkerClock, stepped_worker
from tests.subprocesses import Processes, until

ONE = RetryPolicy(max_attempts=1)
#: Fields of a reply without claims.
REPLY: dict[str, Any] = {
    **{"now_us": 1, "lost": frozenset(), "overdue_in_us": 1, "queues_version": b""},
    **{"has_more": False, "unknown_worker": False, "recovered": False, "blocking": False},
}


@pytest.fixture
def apis(delayq_settings: Any, redis_url: str) -> Iterator[ShardApis]:
    opened = ShardApis(redis_url)
    yield opened
    opened.close()


@pytest.fixture
def dead() -> Iterator[list[str]]:
    """The ids in the job_dead_lettered signals."""
    ids: list[str] = []

    def receive(sender: Any, job_id: str, **_: Any) -> None:
        ids.append(job_id)

    job_dead_lettered.connect(receive)
    yield ids
    job_dead_lettered.disconnect(receive)


# In one request


@pytest.mark.parametrize("ends", list(itertools.product(Action, repeat=2)), ids=lambda ends: " and ".join(ends))
def test_a_lease_settled_twice_in_one_request_is_settled_once(ends: Sequence[Action], apis: ShardApis) -> None:
    raw_id = apis.add("argument", key="held")
    worker = apis.worker()
    (claim,) = worker.take().claims
    # Retried in an hour: this request does not claim it again.
    assert not worker.take(0, settle=[settlement(claim, action, delay=3_600_000_000) for action in ends]).lost
    places = apis.where(raw_id)
    if not places:
        assert apis.traces(raw_id) == []
        return
    assert len(places) == 1 and set(ends) != {Action.ACKNOWLEDGE}
    letter = apis.inspection.dead_letter(raw_id)
    job = letter.job if letter else apis.inspection.find(raw_id).job
    assert job is not None and job.args == ["argument"] and job.key == "held"
    assert apis.client.hlen(apis.keys("claim_records")) == 0


# By a worker


@pytest.fixture
def lease() -> int:
    """The LEASE setting, in seconds."""
    return 30


@pytest.fixture
def link(tmp_path: Path, delayq_settings: Any, redis_url: str, lease: int) -> Path:
    """A symbolic link to the server's socket, which a test can hide."""
    name = tmp_path / "name.sock"
    name.symlink_to(redis_url.removeprefix("unix://").split("?")[0])
    delayq_settings.DELAYQ = {"REDIS": f"unix://{name}", "LEASE": lease}
    return name


@pytest.fixture
def processes(tmp_path: Path, delayq_settings: Any, link: Path, monkeypatch: pytest.MonkeyPatch) -> Processes:
    """Processes without a process: a test reads the ledger of the jobs that run here."""
    monkeypatch.setenv("DELAYQ_TEST_LEDGER", str(tmp_path / "ledger"))
    return Processes(tmp_path, delayq_settings)


@pytest.fixture
def clock() -> WorkerClock:
    """The clock of `worker`."""
    return WorkerClock()


@pytest.fixture
def worker(link: Path, clock: WorkerClock) -> Iterator[Worker]:
    """A worker in this process that the test steps."""
    with stepped_worker(clock=clock) as made:
        yield made


def test_a_reply_without_claims_leaves_work_available_as_it_was(worker: Worker) -> None:
    worker._work_available, worker._sweep_at = True, 1.0
    # No queue is new.
    worker._queues._version = REPLY["queues_version"]
    worker._accept_claims(ExchangeReply(claimed=False, claims=[], **REPLY))
    assert worker._work_available and worker._sweep_at == 1.0
    worker._accept_claims(ExchangeReply(claimed=True, claims=[], **REPLY))
    assert not worker._work_available and worker._sweep_at > 1.0


def test_a_stopped_worker_does_not_wait_for_a_notification(worker: Worker) -> None:
    until(worker.step, what="nothing to do")
    worker.listen()
    assert worker._session.in_flight is InFlight.BLOCKING and (worker.step() or 0) > 0
    worker.stop()
    assert worker.step() == 0
    assert worker.step() is None


def test_a_claim_of_a_blocking_request_is_confirmed_before_the_pool_has_it(
    link: Path, client: Redis, processes: Processes
) -> None:
    class Confirmed(ThreadPool):
        """A pool that takes claims only once they are confirmed."""

        def submit(self, claims: Sequence[Claim], owner: PoolClient) -> None:
            # The heartbeat would confirm it too, but only after 10 s.
            until(lambda: not client.scard("delayq:{0}:unconfirmed"), what="the claim to be confirmed", patience=5)
            super().submit(claims, owner)

    def blocking_claims() -> int:
        return client.info("commandstats").get("cmdstat_sadd", {"calls": 0})["calls"]

    def is_done() -> bool:
        worker.step()
        if worker.listen() > 0 and select.select([worker.listen()], [], [], 0.05)[0]:
            worker.on_wakeup()
        return job.refresh().state == "gone"

    with stepped_worker(pool=Confirmed(2, recovery=RecoveryRunner())) as worker:
        client.config_resetstat()
        # For the first jobs the worker does not know the queue yet, or has just begun to listen.
        for _ in range(10):
            job = tasks.record.enqueue()
            until(is_done, what="a job to end")
            if blocking_claims():
                break
        assert blocking_claims()


def test_a_task_that_ends_before_its_interruption_is_sent_is_settled_by_its_own_outcome(
    worker: Worker, clock: WorkerClock, processes: Processes, link: Path, tmp_path: Path, client: Redis, dead: list[str]
) -> None:
    gates = [tmp_path / "first", tmp_path / "second"]
    jobs = [tasks.wait_for.using(retry=ONE).enqueue(str(gate)) for gate in gates]
    until(lambda: worker.step() is not None and len(processes.runs()) == 2, what="both jobs to run")

    away = link.rename(tmp_path / "away.sock")
    client.client_kill_filter(_type="normal", skipme=True)
    gates[0].touch()
    with pytest.raises(StoreUnavailable):
        until(lambda: worker.step() is None, what="the first outcome to be sent")
    # GRACE is over at the second call: the second job is interrupted, while a request waits for Redis.
    worker.stop()
    worker.stop()
    # On a slow machine it would give up the request after 5 s.
    clock.stop()
    with pytest.raises(StoreUnavailable):
        worker.step()
    gates[1].touch()
    until(lambda: len(worker._outcomes) == 2, what="the second job's own outcome")

    away.rename(link)
    until(lambda: worker.step() is None, what="the worker's end")
    assert [job.refresh().state for job in jobs] == ["gone", "gone"]
    assert dead == []
    assert client.hlen("delayq:{0}:jobs") == client.hlen("delayq:{0}:dead_bodies") == 0


@pytest.mark.parametrize("lease", [2])
def test_a_job_whose_lease_certainly_expired_before_it_began_does_not_run(
    worker: Worker, processes: Processes, link: Path, tmp_path: Path, client: Redis, gate: Path, lease: int
) -> None:
    # Jobs this short are claimed ahead: two run, one waits for a thread.
    worker._prefetch.observe(1_000)
    jobs = [*tasks.wait_for.enqueue_many([(str(gate),), (str(gate),)]), tasks.record.enqueue()]
    # One more step would release the third, because it has waited too long.
    until(lambda: worker.step() is not None and len(worker._held) == 3, what="three claims")
    until(lambda: len(processes.runs()) == 2, what="two jobs to run")

    away = link.rename(tmp_path / "away.sock")
    client.client_kill_filter(_type="normal", skipme=True)
    until(lambda: not any(map(worker.may_begin, worker._held)), what="the leases to be certainly over")
    gate.touch()
    until(lambda: len(worker._outcomes) == 3, what="all to end")
    assert len(processes.runs()) == 2

    away.rename(link)
    until(lambda: worker.step() is not None and len(processes.runs()) == 3, what="the third job to run")
    until(lambda: worker.step() is not None and not client.hlen("delayq:{0}:jobs"), what="all to be settled")
    # A claim that has not begun does not count as an attempt.
    assert [run["attempt"] for run in processes.runs(jobs[2].id)] == [1]


# By dispatchers


class Overtaken(Promotion):
    """Promotion of a slow dispatcher: before it reclaims the expired leases that it read, `meanwhile` is called."""

    meanwhile: Callable[[], object]

    def reclaim(self, decided: Sequence[Reclaim]) -> list[bool]:
        self.meanwhile()
        return super().reclaim(decided)


@pytest.mark.parametrize("body", ["sound", "damaged"])
def test_only_one_of_two_dispatchers_signals_a_dead_letter(body: str, apis: ShardApis, dead: list[str]) -> None:
    job = tasks.noop.using(retry=ONE).enqueue()
    (claim,) = apis.worker().take().claims
    if body == "damaged":
        apis.client.hset(apis.keys("jobs"), claim.raw_id, b"\x01damaged")
    apis.clock.advance(apis.config.worker.lease_us)
    slow = Overtaken(apis.shard)
    quick = Dispatcher(apis.shard, apis.promotion, emit=emit_now)
    slow.meanwhile = quick.promote
    Dispatcher(apis.shard, slow, emit=emit_now).promote()
    assert dead == [job.id]
    found = get_job(dead[0])
    assert found is not None and found.state == "dead"


def test_a_dispatcher_sends_no_signal_for_a_lease_that_is_settled_meanwhile(apis: ShardApis, dead: list[str]) -> None:
    job = tasks.noop.using(retry=ONE).enqueue()
    worker = apis.worker()
    (claim,) = worker.take().claims
    apis.clock.advance(apis.config.worker.lease_us)
    slow = Overtaken(apis.shard)
    slow.meanwhile = lambda: worker.settle(claim, Action.ACKNOWLEDGE)
    Dispatcher(apis.shard, slow, emit=emit_now).promote()
    assert dead == []
    assert job.refresh().state == "gone"


def test_a_worker_without_redis_leaves_its_share_of_the_pool_to_others(worker: Worker, link: Path) -> None:
    away = link.rename(link.with_name("away.sock"))
    with pytest.raises(StoreUnavailable):
        worker.step()
    assert (worker._prefetch.wants_more, worker._prefetch.requested) == (False, 0)
    away.rename(link)


def test_a_recovered_job_without_a_free_process_is_released_uncounted(
    worker: Worker, processes: Processes, link: Path, client: Redis, apis: ShardApis
) -> None:
    assert (recovery := worker._pool.recovery) is not None
    recovery.start((up := threading.Event()).set)
    assert up.wait(60)
    job = tasks.record.enqueue()
    # As after a crash: one attempt is counted, and its outcome is unknown.
    apis.worker().take()
    until(lambda: (worker.step() or 0) > 0 and not worker._work_available, what="the worker to know the queue")
    # A jump of the clock spares each lease once.
    for _ in range(2):
        apis.clock.advance(apis.config.worker.lease_us)
        Dispatcher(apis.shard, apis.promotion, emit=emit_now).promote()

    away = link.rename(link.with_name("away.sock"))
    worker._work_available = True
    client.client_kill_filter(_type="normal", skipme=True)
    with pytest.raises(StoreUnavailable):
        worker.step()
    # Another shard's worker takes the process meanwhile.
    assert recovery.reserve()
    away.rename(link)
    until(lambda: worker.step() is not None and worker._session.in_flight is InFlight.NOTHING, what="a reply")
    assert [claim.attempts.crash_suspected for claim in worker._held] == [True]
    until(lambda: worker.step() is not None and not len(worker._held), what="its release")
    assert not processes.runs()
    recovery.release()
    until(lambda: worker.step() is not None and job.refresh().state == "gone", what="the job to run")
    assert [run["attempt"] for run in processes.runs(job.id)] == [2]
