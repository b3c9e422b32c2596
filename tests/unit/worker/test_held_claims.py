"""HeldClaims: a worker ends if the thread that renews its leases dies."""

import threading

import pytest

from django_delayq.store.claims import HeartbeatReply
from django_delayq.worker.claiming.leases import HeldClaims

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
