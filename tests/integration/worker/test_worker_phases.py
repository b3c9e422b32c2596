"""Worker phases: each cell of the table in the docstring of `Worker`, which shows what one step does."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from django_delayq.exceptions import StoreUnavailable
from django_delayq.task.handle import JobHandle
from django_delayq.worker.exchange_session import InFlight
from django_delayq.worker.worker import Phase, Worker
from tests.one_by_one import one_by_one
from tests.sample_app import tasks
from tests.stepped_worker import WorkerClock, await_notification, redis_unreachable, step_until_idle, stepped_worker
from tests.subprocesses import until

RUNNING, DRAINING, QUIET, STOPPING, INTERRUPTING = Phase
NOTHING, EXCHANGE, BLOCKING, REPLY = InFlight


class Scene:
    """One worker of two slots, brought into a phase with something in flight."""

    def __init__(self, phase: Phase, link: Path, client: Redis, folder: Path) -> None:
        self.phase = phase
        self._link = link
        self._client = client
        self._gate = folder / "gate"
        self.clock = WorkerClock()
        self._stack = ExitStack()
        self._stack.callback(self._gate.touch)
        self.worker: Worker = self._stack.enter_context(stepped_worker(drain=phase is DRAINING, clock=self.clock))
        # The worker must know the queue: a new name is read by a request of its own.
        tasks.noop.enqueue()
        until(lambda: self.worker.step() != 0 and not self.worker._held, what="the first job to end")
        # The first job's notification would end the first BLPOP.
        client.delete("delayq:{0}:notify")

    def close(self) -> None:
        self._stack.close()

    def hold_a_job(self) -> JobHandle:
        """Keep one slot busy until the end of the test."""
        held = tasks.wait_for.enqueue(str(self._gate))
        self.worker._work_available = True
        until(lambda: self.worker.step() != 0 and self.worker._held, what="the job to be claimed")
        (claim,) = self.worker._held
        until(lambda: self.worker._pool.has_begun(claim), what="the job to begin")
        return held

    def put_in_flight(self, in_flight: InFlight) -> JobHandle:
        """Put this in flight; returns a ready job, which the worker would claim next or has just claimed."""
        if in_flight in (BLOCKING, REPLY):
            self.worker.listen()
            assert self.worker._session.in_flight is BLOCKING
        if in_flight is BLOCKING:
            # A job of the future: a ready one would end the pop.
            return tasks.noop.after(hours=1).enqueue()
        ready = tasks.noop.enqueue()
        if in_flight is REPLY:
            await_notification(self.worker)
        else:
            self.worker._work_available = True
        if in_flight is EXCHANGE and self.phase is DRAINING:
            # Without Redis its promotion fails before it sends a request.
            self.worker._prepare()
        elif in_flight is EXCHANGE:
            with redis_unreachable(self._link, self._client), pytest.raises(StoreUnavailable):
                self.worker.step()
        assert self.worker._session.in_flight is in_flight
        return ready

    def enter(self) -> None:
        """Bring the worker into its phase."""
        if self.phase is QUIET:
            # In Redis, too: otherwise the next heartbeat would end it.
            assert one_by_one().quiet(self.worker.worker_id, by="ann")
            until(lambda: self.worker.phase is QUIET, what="the worker to be quiet")
        if self.phase in (STOPPING, INTERRUPTING):
            self.worker.stop()
        if self.phase is INTERRUPTING:
            self.worker.stop()
        assert self.worker.phase is self.phase


@pytest.fixture
def scene(
    request: pytest.FixtureRequest,
    delayq_settings: Any,
    redis_url: str,
    client: Redis,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Scene]:
    monkeypatch.setenv("DELAYQ_TEST_LEDGER", str(tmp_path / "ledger"))
    link = tmp_path / "name.sock"
    link.symlink_to(redis_url.removeprefix("unix://").split("?")[0])
    delayq_settings.DELAYQ = {"REDIS": f"unix://{link}", "LEASE": 30, "GRACE": 600}
    made = Scene(request.param, link, client, tmp_path)
    yield made
    made.close()


#: Phase, in flight -> in flight after one step, and what becomes of the ready job.
TABLE = [
    (RUNNING, NOTHING, NOTHING, "claimed"),
    (RUNNING, EXCHANGE, NOTHING, "claimed"),
    (RUNNING, BLOCKING, BLOCKING, "left"),
    (RUNNING, REPLY, NOTHING, "claimed"),
    (DRAINING, NOTHING, NOTHING, "claimed"),
    (DRAINING, EXCHANGE, NOTHING, "claimed"),
    (QUIET, NOTHING, NOTHING, "left"),
    (QUIET, EXCHANGE, NOTHING, "released"),
    (QUIET, BLOCKING, NOTHING, "left"),
    (QUIET, REPLY, NOTHING, "released"),
    (STOPPING, NOTHING, NOTHING, "left"),
    (STOPPING, EXCHANGE, NOTHING, "released"),
    (INTERRUPTING, NOTHING, NOTHING, "left"),
    (INTERRUPTING, EXCHANGE, NOTHING, "released"),
    (INTERRUPTING, BLOCKING, NOTHING, "left"),
    (INTERRUPTING, REPLY, NOTHING, "released"),
]


@pytest.mark.parametrize(
    ("scene", "in_flight", "after", "fate"),
    [pytest.param(*row, id=f"{row[0].name}-{row[1].name}") for row in TABLE],
    indirect=["scene"],
)
def test_one_step_does_what_the_table_shows(scene: Scene, in_flight: InFlight, after: InFlight, fate: str) -> None:
    worker = scene.worker
    if scene.phase is STOPPING:
        # Without a job in hand a worker that is stopped ends at once.
        scene.hold_a_job()
    held = len(worker._held)
    job = scene.put_in_flight(in_flight)
    scene.enter()
    seconds = worker.step()
    assert worker._session.in_flight is after
    if fate == "left":
        # It sleeps, has ended, or sent its last request for nothing.
        assert len(worker._held) == held and job.refresh().state in ("ready", "scheduled")
        assert seconds == 0 if in_flight is BLOCKING and scene.phase is not RUNNING else seconds != 0
        return
    assert seconds == 0 and len(worker._held) == held + 1
    if fate == "claimed":
        until(lambda: worker.step() is not None and job.refresh().state == "gone", what="the job to end")
    else:
        assert worker.step() == 0
        assert len(worker._held) == held and job.refresh().state == "ready"
        found = job._store.lookup(job._shard).find(job._raw_id)
        assert found is not None and found.attempts.ended == 0


@pytest.mark.parametrize("scene", [DRAINING], indirect=True)
def test_a_draining_worker_promotes_and_ends_when_no_job_is_left(scene: Scene) -> None:
    job = tasks.noop.after(seconds=0.05).enqueue()
    until(lambda: job.refresh().state == "gone" or scene.worker.step() is None, what="the job to end")
    step_until_idle(scene.worker)
    assert scene.worker.step() is None


@pytest.mark.parametrize("scene", [QUIET], indirect=True)
def test_a_quiet_worker_sends_the_outcome_of_what_runs_and_claims_again_when_it_may(scene: Scene) -> None:
    held = scene.hold_a_job()
    scene.enter()
    job = scene.put_in_flight(NOTHING)
    scene._gate.touch()
    until(lambda: (scene.worker.step() or 0) >= 0 and held.refresh().state == "gone", what="the outcome")
    assert job.refresh().state == "ready"
    assert one_by_one().unquiet(scene.worker.worker_id)
    until(lambda: scene.worker.phase is RUNNING, what="the worker to claim again")
    until(lambda: (scene.worker.step() or 0) >= 0 and job.refresh().state == "gone", what="the next job")


@pytest.mark.parametrize("scene", [STOPPING], indirect=True)
def test_a_stopping_worker_ends_when_what_it_holds_has_ended(scene: Scene) -> None:
    held = scene.hold_a_job()
    scene.enter()
    assert (scene.worker.step() or 0) > 0
    scene._gate.touch()
    until(lambda: scene.worker.step() is None, what="the worker to end")
    assert held.refresh().state == "gone"


@pytest.mark.parametrize("scene", [INTERRUPTING], indirect=True)
def test_a_worker_past_grace_settles_what_runs_as_interrupted_and_ends(scene: Scene) -> None:
    interrupted: list[Worker] = []
    scene.worker.on_interrupted = lambda: interrupted.append(scene.worker)
    held = scene.hold_a_job()
    scene.enter()
    assert scene.worker.step() == 0 and interrupted
    assert held.refresh().state == "ready" and scene.worker.step() is None


@pytest.mark.parametrize("scene", [STOPPING], indirect=True)
def test_a_second_signal_in_the_middle_of_a_step_interrupts_what_runs(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step of a stopping worker may take a round trip, to notify others of work that it will not claim."""
    held = scene.hold_a_job()
    scene.enter()
    worker, notify = scene.worker, scene.worker._queues.notify_others

    def notify_and_stop() -> None:
        notify()
        worker.stop()

    monkeypatch.setattr(worker._queues, "notify_others", notify_and_stop)
    worker._work_available = True
    until(lambda: worker.step() is None, what="the worker to end")
    assert held.refresh().state == "ready"


@pytest.mark.parametrize("scene", [INTERRUPTING], indirect=True)
def test_a_worker_past_grace_gives_up_a_request_without_reply_after_five_seconds(scene: Scene) -> None:
    scene.put_in_flight(EXCHANGE)
    scene.enter()
    with redis_unreachable(scene._link, scene._client):
        with pytest.raises(StoreUnavailable):
            scene.worker.step()
        scene.clock.ahead = 6
        assert scene.worker.step() is None
