"""Held: a worker learns that the thread which renews its leases has died."""

import threading

import pytest

from django_delayq.worker.leases import HeldClaims

PATIENCE = 30.0


class Late(BaseException):
    """What code of users raises in any thread, as time limits do."""


def held_by(beat: type[BaseException] | None) -> tuple[HeldClaims, threading.Event]:
    """Return what a worker holds, with a heartbeat that raises this, and what is set when heartbeats end."""
    ended = threading.Event()
    held = HeldClaims(lambda *_: frozenset(), lambda _: False, lease_us=300_000, name="a worker", ended=ended.set)

    def strike() -> frozenset[bytes]:
        if beat:
            raise beat
        return frozenset()

    held.leases.beat = strike  # type: ignore[method-assign]
    return held, ended


@pytest.mark.parametrize("error", [Late, SystemExit])
# Its thread ends by the error too, which Python prints.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_heartbeats_that_died_end_their_worker(error: type[BaseException]) -> None:
    held, ended = held_by(error)
    assert ended.wait(PATIENCE)
    for thread in threading.enumerate():
        if thread.name == "delayq-heartbeats":
            thread.join(PATIENCE)
    # Not an Exception: a service would take another step after that, and another.
    with pytest.raises(SystemExit, match="Heartbeats of a worker") as raised:
        held.check()
    assert isinstance(raised.value.__cause__, error)


def test_heartbeats_that_go_on_or_were_ended_end_nobody() -> None:
    held, ended = held_by(None)
    held.check()
    held.close()
    assert ended.wait(PATIENCE)
    held.check()
