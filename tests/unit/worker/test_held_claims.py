"""HeldClaims: a worker ends if the thread that renews its leases dies."""

import threading
from time import monotonic
from typing import Any, cast

import pytest

from django_delayq.clock import lease_time
from django_delayq.exceptions import StoreUnavailable
from django_delayq.job.job import Claim
from django_delayq.job.progress import Progress
from django_delayq.store.claims import HeartbeatReply
from django_delayq.worker.claiming.heartbeats import Heartbeats
from django_delayq.worker.claiming.leases import HeldClaims
from tests.factories import claim_for

PATIENCE = 30.0


class AsyncError(BaseException):
    """An error that user code raises in any thread, as time limits do."""


def beating(error: type[BaseException] | None) -> tuple[Heartbeats, threading.Event]:
    """Return heartbeats of which each raises `error`, and the event that is set when they end."""
    ended = threading.Event()

    def send(*_: Any) -> HeartbeatReply:
        if error:
            raise error
        return HeartbeatReply()

    held = HeldClaims(lease_us=300_000)
    held.add([fresh(1)])
    heartbeats = Heartbeats(held, send, lease_us=300_000, name="a worker", ended=ended.set)
    heartbeats.start()
    return heartbeats, ended


@pytest.mark.parametrize("error", [AsyncError, SystemExit])
# The error ends the thread too, and Python prints it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_in_heartbeats_ends_the_worker(error: type[BaseException]) -> None:
    heartbeats, ended = beating(error)
    assert ended.wait(PATIENCE)
    for thread in threading.enumerate():
        if thread.name == "delayq-heartbeats":
            thread.join(PATIENCE)
    # Not an Exception: a service would log it and continue to step.
    with pytest.raises(SystemExit, match="Heartbeats of a worker") as raised:
        heartbeats.check()
    assert isinstance(raised.value.__cause__, error)


def test_running_or_closed_heartbeats_do_not_end_the_worker() -> None:
    heartbeats, ended = beating(None)
    heartbeats.check()
    heartbeats.end()
    assert ended.wait(PATIENCE)
    heartbeats.check()


class Redis:
    """What heartbeats send and receive."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sent: list[tuple[list[bytes], dict[bytes, Progress]]] = []
        self.reply = HeartbeatReply()
        self.fails = False

    def heartbeat(self, leases: list[bytes], _: Any, progress: Any) -> HeartbeatReply:
        if self.fails:
            raise StoreUnavailable("away")
        self.sent.append((leases, dict(progress)))
        return self.reply


@pytest.fixture
def redis() -> Redis:
    return Redis()


@pytest.fixture
def stops() -> list[tuple[bytes, float]]:
    return []


@pytest.fixture
def held(stops: list[tuple[bytes, float]]) -> HeldClaims:
    """Claims 1 and 2."""
    held = HeldClaims(lease_us=30_000_000, stop_claim=lambda lease, seconds: stops.append((lease, seconds)))
    held.add([fresh(1), fresh(2)])
    return held


@pytest.fixture
def heartbeats(redis: Redis, held: HeldClaims) -> Heartbeats:
    """Their heartbeats, after the first one."""
    heartbeats = Heartbeats(held, redis.heartbeat, lease_us=30_000_000, clock=lambda: redis.now)
    heartbeats.step()
    redis.sent.clear()
    return heartbeats


def fresh(number: int) -> Claim:
    """Return a claim that was just made."""
    return claim_for(None, lease=number.to_bytes(30), sent_at=lease_time(), received_at=monotonic())


ONE, TWO = fresh(1), fresh(2)


def test_progress_is_written_at_once_and_then_twice_a_second_with_the_last_value(
    redis: Redis, heartbeats: Heartbeats
) -> None:
    redis.now += 1
    for number in range(1_000):
        heartbeats.report_progress(ONE.lease, Progress(number / 1_000))
        wait = heartbeats.step()
        assert wait is not None
    assert redis.sent == [([ONE.lease], {ONE.lease: Progress(0.0)})]
    redis.now += wait
    assert wait == pytest.approx(0.5)
    heartbeats.step()
    assert redis.sent[1:] == [([ONE.lease], {ONE.lease: Progress(0.999)})]


def test_all_progress_goes_with_the_heartbeat_that_is_due(redis: Redis, heartbeats: Heartbeats) -> None:
    redis.now += 10
    heartbeats.report_progress(ONE.lease, Progress(0.5))
    wait = heartbeats.step()
    assert redis.sent == [([ONE.lease, TWO.lease], {ONE.lease: Progress(0.5)})]
    assert wait == pytest.approx(10)


def test_progress_survives_an_outage_and_not_the_end_of_its_claim(
    redis: Redis, held: HeldClaims, heartbeats: Heartbeats
) -> None:
    redis.now += 1
    redis.fails = True
    for claim in (ONE, TWO):
        heartbeats.report_progress(claim.lease, Progress(0.25))
    with pytest.raises(StoreUnavailable):
        heartbeats.step()
    heartbeats.report_progress(ONE.lease, Progress(0.5))
    held.settled([TWO.lease])
    held.add([three := fresh(3)])
    heartbeats.report_progress(three.lease, Progress(0.0))
    with pytest.raises(StoreUnavailable):
        heartbeats.beat()
    heartbeats.report_progress(ONE.lease, Progress(0.75))
    redis.fails, redis.now = False, redis.now + 1
    heartbeats.step()
    [(_, written)] = redis.sent
    assert written == {ONE.lease: Progress(0.75), three.lease: Progress(0.0)}
    heartbeats.report_progress(TWO.lease, Progress(0.75))
    redis.now += 1
    heartbeats.step()
    assert len(redis.sent) == 1


def test_a_claim_is_stopped_once_unless_its_end_changes(
    redis: Redis, held: HeldClaims, heartbeats: Heartbeats, stops: list[tuple[bytes, float]]
) -> None:
    for left_us in (10_000_000, 9_800_000, 2_000_000, 600_000_000, 0, 0):
        redis.reply = HeartbeatReply(stops={ONE.lease: left_us})
        heartbeats.beat()
    assert stops == [(ONE.lease, 10.0), (ONE.lease, 2.0), (ONE.lease, 600.0), (ONE.lease, 0.0)]
    assert ONE.lease in held.stopping and TWO.lease not in held.stopping


def test_code_that_was_asked_to_stop_does_not_begin(redis: Redis, held: HeldClaims, heartbeats: Heartbeats) -> None:
    redis.reply = HeartbeatReply(stops={ONE.lease: 0})
    heartbeats.beat()
    assert not held.begin(ONE.lease)
    assert held.begin(TWO.lease)
    held.settled([ONE.lease])
    assert ONE.lease not in held.stopping


class Notification:
    """A connection that listens, of a server that still loads its data."""

    def __init__(self) -> None:
        self.loads = True

    def arrived(self) -> bool:
        if self.loads:
            raise StoreUnavailable("loading")
        return False


def test_after_a_lost_connection_a_heartbeat_shows_that_redis_works_again(redis: Redis) -> None:
    notification = Notification()
    heartbeats = Heartbeats(
        HeldClaims(lease_us=30_000_000),
        redis.heartbeat,
        lease_us=30_000_000,
        notification=cast(Any, notification),
        clock=lambda: redis.now,
    )
    heartbeats.step()
    assert redis.sent == []
    with pytest.raises(StoreUnavailable):
        heartbeats.on_wakeup()
    redis.fails = True
    with pytest.raises(StoreUnavailable):
        heartbeats.step()
    redis.fails = notification.loads = False
    heartbeats.step()
    assert redis.sent == [([], {})]
    # The pop ended without a notification.
    heartbeats.on_wakeup()
    heartbeats.step()
    assert redis.sent == [([], {})]


def test_an_end_that_is_over_is_not_passed_on_again(
    redis: Redis, heartbeats: Heartbeats, stops: list[tuple[bytes, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    redis.reply = HeartbeatReply(stops={ONE.lease: 0})
    heartbeats.beat()
    later = monotonic() + 60
    monkeypatch.setattr("django_delayq.worker.claiming.leases.monotonic", lambda: later)
    heartbeats.beat()
    assert len(stops) == 1


def test_a_report_that_arrives_before_the_heartbeat_begins_goes_with_it(redis: Redis, heartbeats: Heartbeats) -> None:
    """Every report is either sent or kept, whatever thread it comes from."""
    redis.now += 1
    heartbeats.report_progress(ONE.lease, Progress(0.25))
    beat = heartbeats.beat

    def after_another_report(**options: Any) -> frozenset[bytes]:
        heartbeats.report_progress(TWO.lease, Progress(0.5))
        return beat(**options)

    heartbeats.beat = after_another_report  # type: ignore[method-assign]
    heartbeats.step()
    assert redis.sent == [([ONE.lease, TWO.lease], {ONE.lease: Progress(0.25), TWO.lease: Progress(0.5)})]


def test_a_record_of_a_stop_or_of_a_lost_lease_names_its_job(
    redis: Redis, heartbeats: Heartbeats, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="django_delayq")
    redis.reply = HeartbeatReply(stops={ONE.lease: 0}, lost=frozenset([TWO.lease]))
    heartbeats.beat()
    assert {record.job_id for record in caplog.records} == {ONE.id, TWO.id}  # type: ignore[attr-defined]
