"""One outcome a lease: however often an end is told, by a worker or by dispatchers, the job ends once and whole."""

import itertools
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

import django_delayq.worker.worker
from django_delayq import RetryPolicy, get_job
from django_delayq.dispatcher import Dispatcher
from django_delayq.exceptions import StoreUnavailable
from django_delayq.job.outcome import Action
from django_delayq.processes.emitter import emit_now
from django_delayq.signals import job_dead_lettered
from django_delayq.store.claims import ExchangeReply
from django_delayq.store.promotion import Promotion, Reclaim
from django_delayq.worker.exchange_session import InFlight
from django_delayq.worker.worker import Worker
from tests.sample_app import tasks
from tests.shard_apis import ShardApis, settlement
from tests.stepped_worker import stepped_worker
from tests.subprocesses import Processes, until

ONE = RetryPolicy(max_attempts=1)
#: Of an exchange that brought nothing.
ANSWERED: dict[str, Any] = {
    **{"now_us": 1, "lost": frozenset(), "overdue_in_us": 1, "queues_version": b""},
    **{"has_more": False, "unknown_worker": False, "recovered": False, "blocking": False},
}


@pytest.fixture
def apis(delayq_settings: Any, redis_url: str) -> Iterator[ShardApis]:
    opened = ShardApis(redis_url)
    yield opened
    opened.close()


@pytest.fixture
def told() -> Iterator[list[str]]:
    """The ids of which it was told that they are dead."""
    ids: list[str] = []

    def tell(sender: Any, job_id: str, **_: Any) -> None:
        ids.append(job_id)

    job_dead_lettered.connect(tell)
    yield ids
    job_dead_lettered.disconnect(tell)


# In one exchange


@pytest.mark.parametrize("ends", list(itertools.product(Action, repeat=2)), ids=lambda ends: " and ".join(ends))
def test_a_lease_told_twice_in_one_exchange_is_settled_once(ends: Sequence[Action], apis: ShardApis) -> None:
    raw_id = apis.add("argument", key="held")
    worker = apis.worker()
    (claim,) = worker.take().claims
    # Retried in an hour: it is not taken back by this exchange, which asks for nothing.
    assert not worker.take(0, settle=[settlement(claim, how, delay=3_600_000_000) for how in ends]).lost
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
    """Seconds of a lease, LEASE."""
    return 30


@pytest.fixture
def link(tmp_path: Path, delayq_settings: Any, redis_url: str, lease: int) -> Path:
    """The server's socket under a name that can be taken away."""
    name = tmp_path / "name.sock"
    name.symlink_to(redis_url.removeprefix("unix://").split("?")[0])
    delayq_settings.DELAYQ = {"REDIS": f"unix://{name}", "LEASE": lease}
    return name


@pytest.fixture
def processes(tmp_path: Path, delayq_settings: Any, link: Path, monkeypatch: pytest.MonkeyPatch) -> Processes:
    """Nothing is started: it reads the ledger of what this process runs."""
    monkeypatch.setenv("DELAYQ_TEST_LEDGER", str(tmp_path / "ledger"))
    return Processes(tmp_path, delayq_settings)


@pytest.fixture
def worker(link: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """A worker of this process, stepped by hand."""
    monkeypatch.setattr(django_delayq.worker.worker, "_LAST_REPLY", 3_600.0)
    with stepped_worker() as made:
        yield made


def test_an_exchange_that_asked_for_nothing_tells_nothing_of_the_work_there_is(worker: Worker) -> None:
    worker._work_available, worker._sweep_at = True, 1.0
    # No queue is new.
    worker._queues._version = ANSWERED["queues_version"]
    worker._accept_claims(ExchangeReply(claimed=False, claims=[], **ANSWERED))
    assert worker._work_available and worker._sweep_at == 1.0
    worker._accept_claims(ExchangeReply(claimed=True, claims=[], **ANSWERED))
    assert not worker._work_available and worker._sweep_at > 1.0


def test_a_worker_that_is_stopped_does_not_wait_for_its_bell(worker: Worker) -> None:
    until(worker.step, what="nothing to do")
    worker.listen()
    assert worker._session.in_flight is InFlight.BLOCKING and (worker.step() or 0) > 0
    worker.stop()
    assert worker.step() == 0
    assert worker.step() is None


def test_a_claim_made_behind_a_bell_is_confirmed_before_the_pool_has_it(
    worker: Worker, client: Redis, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = worker._pool.submit

    def confirmed_first(*args: Any) -> None:
        # Sooner than a heartbeat does it, after 10 s.
        until(lambda: not client.scard("delayq:{0}:unconfirmed"), what="the claim to be confirmed", patience=5)
        submit(*args)

    def made_behind_a_bell() -> int:
        return client.info("commandstats").get("cmdstat_sadd", {"calls": 0})["calls"]

    def is_done() -> bool:
        worker.step()
        if worker.listen() > 0 and select.select([worker.listen()], [], [], 0.05)[0]:
            worker.on_wakeup()
        return job.refresh().state == "gone"

    monkeypatch.setattr(worker._pool, "submit", confirmed_first)
    client.config_resetstat()
    # The first ones find a worker that does not know their queue yet, or that has just begun to listen.
    for _ in range(10):
        job = tasks.record.enqueue()
        until(is_done, what="a job to end")
        if made_behind_a_bell():
            break
    assert made_behind_a_bell()


def test_a_task_that_ends_after_it_was_given_back_but_before_that_was_told_has_ended(
    worker: Worker, processes: Processes, link: Path, tmp_path: Path, client: Redis, told: list[str]
) -> None:
    gates = [tmp_path / "first", tmp_path / "second"]
    jobs = [tasks.wait_for.using(retry=ONE).enqueue(str(gate)) for gate in gates]
    until(lambda: worker.step() is not None and len(processes.runs()) == 2, what="both jobs to run")

    away = link.rename(tmp_path / "away.sock")
    client.client_kill_filter(_type="normal", skipme=True)
    gates[0].touch()
    with pytest.raises(StoreUnavailable):
        until(lambda: worker.step() is None, what="the first outcome to be handed in")
    # GRACE is over at the second call: the second job is given back, behind an exchange that waits for Redis.
    worker.stop()
    worker.stop()
    with pytest.raises(StoreUnavailable):
        worker.step()
    gates[1].touch()
    until(lambda: len(worker._outcomes) == 2, what="the second job's own end")

    away.rename(link)
    until(lambda: worker.step() is None, what="the worker's end")
    assert [job.refresh().state for job in jobs] == ["gone", "gone"]
    assert told == []
    assert client.hlen("delayq:{0}:jobs") == client.hlen("delayq:{0}:dead_bodies") == 0


@pytest.mark.parametrize("lease", [2])
def test_a_job_whose_lease_surely_ran_out_before_it_began_is_not_begun(
    worker: Worker, processes: Processes, link: Path, tmp_path: Path, client: Redis, gate: Path, lease: int
) -> None:
    # Jobs this short are claimed ahead: two run, one waits for a thread.
    worker._prefetch.observe(1_000)
    jobs = [*tasks.wait_for.enqueue_many([(str(gate),), (str(gate),)]), tasks.record.enqueue()]
    # Not a step more, or the third is given back for having waited.
    until(lambda: worker.step() is not None and len(worker._held) == 3, what="three claims")
    until(lambda: len(processes.runs()) == 2, what="two jobs to run")

    away = link.rename(tmp_path / "away.sock")
    client.client_kill_filter(_type="normal", skipme=True)
    until(lambda: not any(map(worker.may_begin, worker._held)), what="the leases to be surely over")
    gate.touch()
    until(lambda: len(worker._outcomes) == 3, what="all to end")
    assert len(processes.runs()) == 2

    away.rename(link)
    until(lambda: worker.step() is not None and len(processes.runs()) == 3, what="the third job to run")
    until(lambda: worker.step() is not None and not client.hlen("delayq:{0}:jobs"), what="all to be settled")
    # What had not begun is not counted.
    assert [run["attempt"] for run in processes.runs(jobs[2].id)] == [1]


# By dispatchers


class Overtaken(Promotion):
    """A dispatcher's door; between its look at lapsed leases and its verdict, something else happens."""

    meanwhile: Callable[[], object]

    def reclaim(self, decided: Sequence[Reclaim]) -> list[bool]:
        self.meanwhile()
        return super().reclaim(decided)


@pytest.mark.parametrize("body", ["sound", "damaged"])
def test_of_two_dispatchers_that_judge_a_lease_one_tells(body: str, apis: ShardApis, told: list[str]) -> None:
    job = tasks.noop.using(retry=ONE).enqueue()
    (claim,) = apis.worker().take().claims
    if body == "damaged":
        apis.client.hset(apis.keys("jobs"), claim.raw_id, b"\x01damaged")
    apis.clock.advance(apis.config.worker.lease_us)
    slow = Overtaken(apis.shard, apis.config.dispatcher)
    quick = Dispatcher(apis.shard, apis.promotion, emit=emit_now)
    slow.meanwhile = quick.promote
    Dispatcher(apis.shard, slow, emit=emit_now).promote()
    assert told == [job.id]
    found = get_job(told[0])
    assert found is not None and found.state == "dead"


def test_a_dispatcher_that_finds_a_lease_settled_tells_nothing(apis: ShardApis, told: list[str]) -> None:
    job = tasks.noop.using(retry=ONE).enqueue()
    worker = apis.worker()
    (claim,) = worker.take().claims
    apis.clock.advance(apis.config.worker.lease_us)
    slow = Overtaken(apis.shard, apis.config.dispatcher)
    slow.meanwhile = lambda: worker.settle(claim, Action.ACKNOWLEDGE)
    Dispatcher(apis.shard, slow, emit=emit_now).promote()
    assert told == []
    assert job.refresh().state == "gone"


def test_a_worker_whose_redis_is_away_leaves_its_share_of_the_pool_to_others(worker: Worker, link: Path) -> None:
    away = link.rename(link.with_name("away.sock"))
    with pytest.raises(StoreUnavailable):
        worker.step()
    assert (worker._prefetch.wants_more, worker._prefetch.requested) == (False, 0)
    away.rename(link)


def test_a_recovered_job_that_came_without_a_process_is_given_back_uncounted(
    worker: Worker, processes: Processes, link: Path, client: Redis, apis: ShardApis
) -> None:
    assert (recovery := worker._pool.recovery) is not None
    recovery.start((up := threading.Event()).set)
    assert up.wait(60)
    job = tasks.record.enqueue()
    # As after a crash: one attempt was counted, and nobody knows how it ended.
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
    until(lambda: worker.step() is not None and worker._session.in_flight is InFlight.NOTHING, what="an answer")
    assert [claim.attempts.crash_suspected for claim in worker._held] == [True]
    until(lambda: worker.step() is not None and not len(worker._held), what="it to be given back")
    assert not processes.runs()
    recovery.release()
    until(lambda: worker.step() is not None and job.refresh().state == "gone", what="it to run")
    assert [run["attempt"] for run in processes.runs(job.id)] == [2]
