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
from django_delayq.worker.claiming.leases import HeldClaims
from tests.factories import claim_for

PATIENCE = 30.0


class AsyncError(BaseException):
    """An error that user code raises in any thread, as time limits do."""


def held_claims(error: type[BaseException] | None) -> tuple[HeldClaims, threading.Event]:
    """Return held claims whose heartbeat raises `error`, and the event that is set when heartbeats end."""
    ended = threading.Event()
    held = HeldClaims(lambda *_: HeartbeatReply(), lambda _: False, lease_us=300_000, name="a worker", ended=ended.set)

    def beat() -> frozenset[bytes]:
        if error:
            raise error
        return frozenset()

    held.beat = beat  # type: ignore[method-assign]
    held.start()
    return held, ended


@pytest.mark.parametrize("error", [AsyncError, SystemExit])
# The error ends the thread too, and Python prints it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_in_heartbeats_ends_the_worker(error: type[BaseException]) -> None:
    held, ended = held_claims(error)
    assert ended.wait(PATIENCE)
    for thread in threading.enumerate():
        if thread.name == "delayq-heartbeats":
            thread.join(PATIENCE)
    # Not an Exception: a service would log it and continue to step.
    with pytest.raises(SystemExit, match="Heartbeats of a worker") as raised:
        held.check()
    assert isinstance(raised.value.__cause__, error)


def test_running_or_closed_heartbeats_do_not_end_the_worker() -> None:
    held, ended = held_claims(None)
    held.check()
    held.end_heartbeats()
    assert ended.wait(PATIENCE)
    held.check()


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
def held(redis: Redis, stops: list[tuple[bytes, float]]) -> HeldClaims:
    """Claims 1 and 2, after their first heartbeat."""
    held = HeldClaims(
        redis.heartbeat,
        lease_us=30_000_000,
        clock=lambda: redis.now,
        stop_claim=lambda lease, seconds: stops.append((lease, seconds)),
    )
    held.add([fresh(1), fresh(2)])
    held.step()
    redis.sent.clear()
    return held


def fresh(number: int) -> Claim:
    """Return a claim that was just made."""
    return claim_for(None, lease=number.to_bytes(30), sent_at=lease_time(), received_at=monotonic())


ONE, TWO = fresh(1), fresh(2)


def test_progress_is_written_at_once_and_then_twice_a_second_with_the_last_value(
    redis: Redis, held: HeldClaims
) -> None:
    redis.now += 1
    for number in range(1_000):
        held.report_progress(ONE.lease, Progress(number / 1_000))
        wait = held.step()
        assert wait is not None
    assert redis.sent == [([ONE.lease], {ONE.lease: Progress(0.0)})]
    redis.now += wait
    assert wait == pytest.approx(0.5)
    held.step()
    assert redis.sent[1:] == [([ONE.lease], {ONE.lease: Progress(0.999)})]


def test_all_progress_goes_with_the_heartbeat_that_is_due(redis: Redis, held: HeldClaims) -> None:
    redis.now += 10
    held.report_progress(ONE.lease, Progress(0.5))
    wait = held.step()
    assert redis.sent == [([ONE.lease, TWO.lease], {ONE.lease: Progress(0.5)})]
    assert wait == pytest.approx(10)


def test_progress_survives_an_outage_and_not_the_end_of_its_claim(redis: Redis, held: HeldClaims) -> None:
    redis.now += 1
    redis.fails = True
    for claim in (ONE, TWO):
        held.report_progress(claim.lease, Progress(0.25))
    with pytest.raises(StoreUnavailable):
        held.step()
    held.report_progress(ONE.lease, Progress(0.5))
    held.settled([TWO.lease])
    held.add([three := fresh(3)])
    held.report_progress(three.lease, Progress(0.0))
    with pytest.raises(StoreUnavailable):
        held.beat()
    held.report_progress(ONE.lease, Progress(0.75))
    redis.fails, redis.now = False, redis.now + 1
    held.step()
    [(_, written)] = redis.sent
    assert written == {ONE.lease: Progress(0.75), three.lease: Progress(0.0)}
    held.report_progress(TWO.lease, Progress(0.75))
    redis.now += 1
    held.step()
    assert len(redis.sent) == 1


def test_a_claim_is_stopped_once_unless_its_end_changes(
    redis: Redis, held: HeldClaims, stops: list[tuple[bytes, float]]
) -> None:
    for left_us in (10_000_000, 9_800_000, 2_000_000, 600_000_000, 0, 0):
        redis.reply = HeartbeatReply(stops={ONE.lease: left_us})
        held.beat()
    assert stops == [(ONE.lease, 10.0), (ONE.lease, 2.0), (ONE.lease, 600.0), (ONE.lease, 0.0)]
    assert held.is_stopping(ONE.lease) and not held.is_stopping(TWO.lease)


def test_code_that_was_asked_to_stop_does_not_begin(redis: Redis, held: HeldClaims) -> None:
    redis.reply = HeartbeatReply(stops={ONE.lease: 0})
    held.beat()
    assert not held.begin(ONE.lease)
    assert held.begin(TWO.lease)
    held.settled([ONE.lease])
    assert not held.is_stopping(ONE.lease)


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
    held = HeldClaims(
        redis.heartbeat, lease_us=30_000_000, clock=lambda: redis.now, notification=cast(Any, notification)
    )
    held.step()
    assert redis.sent == []
    with pytest.raises(StoreUnavailable):
        held.on_wakeup()
    redis.fails = True
    with pytest.raises(StoreUnavailable):
        held.step()
    redis.fails = notification.loads = False
    held.step()
    assert redis.sent == [([], {})]
    # The pop ended without a notification.
    held.on_wakeup()
    held.step()
    assert redis.sent == [([], {})]


def test_an_end_that_is_over_is_not_passed_on_again(
    redis: Redis, held: HeldClaims, stops: list[tuple[bytes, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    redis.reply = HeartbeatReply(stops={ONE.lease: 0})
    held.beat()
    later = monotonic() + 60
    monkeypatch.setattr("django_delayq.worker.claiming.leases.monotonic", lambda: later)
    held.beat()
    assert len(stops) == 1


def test_a_report_that_arrives_before_the_heartbeat_begins_goes_with_it(redis: Redis, held: HeldClaims) -> None:
    """Every report is either sent or kept, whatever thread it comes from."""
    redis.now += 1
    held.report_progress(ONE.lease, Progress(0.25))
    beat = held.beat

    def after_another_report(**options: Any) -> frozenset[bytes]:
        held.report_progress(TWO.lease, Progress(0.5))
        return beat(**options)

    held.beat = after_another_report  # type: ignore[method-assign]
    held.step()
    assert redis.sent == [([ONE.lease, TWO.lease], {ONE.lease: Progress(0.25), TWO.lease: Progress(0.5)})]


def test_a_record_of_a_stop_or_of_a_lost_lease_names_its_job(
    redis: Redis, held: HeldClaims, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="django_delayq")
    redis.reply = HeartbeatReply(stops={ONE.lease: 0}, lost=frozenset([TWO.lease]))
    held.beat()
    assert {record.job_id for record in caplog.records} == {ONE.id, TWO.id}  # type: ignore[attr-defined]
