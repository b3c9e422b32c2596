"""Service: the loop around a Runnable. The one here has a script of what each step does."""

import fcntl
import logging
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_delayq.exceptions import ScriptFault, StoreAuthError, StoreError, StoreUnavailable
from django_delayq.processes.service import Service

PATIENCE = 30.0
LONG = 3_600.0
Step = Callable[[], float | None]


class ScriptedRunnable:
    """Take the given steps in order; end after the last one, or when stopped."""

    def __init__(self, *steps: Any) -> None:
        self.steps = list(steps)
        self.taken = 0
        self.stops = 0
        self.closed = 0
        self.wakeups: list[int] = []
        self.socket_read, self.socket_write = socket.socketpair()
        self.on_listen: Callable[[], int] = self.socket_read.fileno
        self.after_wakeup: Callable[[], None] = lambda: None
        #: Set when a step is about to sleep long.
        self.sleeps = threading.Event()

    def step(self) -> float | None:
        self.taken += 1
        if self.stops or not self.steps:
            return None
        act = self.steps.pop(0)
        if isinstance(act, BaseException):
            raise act
        delay: float | None = act() if callable(act) else act
        if delay == LONG:
            self.sleeps.set()
        return delay

    def listen(self) -> int:
        return self.on_listen()

    def on_wakeup(self) -> None:
        self.wakeups.append(self.taken)
        self.socket_read.recv(100)
        self.after_wakeup()

    def stop(self) -> None:
        self.stops += 1

    def close(self) -> None:
        self.closed += 1

    def shut(self) -> None:
        self.socket_read.close()
        self.socket_write.close()


@pytest.fixture
def running() -> Iterator[Callable[..., tuple[ScriptedRunnable, Service]]]:
    """Start services in threads; each must have ended when the test has."""
    started: list[tuple[ScriptedRunnable, Service, threading.Thread]] = []

    def start(
        *steps: Any, change: Callable[[ScriptedRunnable], None] = lambda runnable: None
    ) -> tuple[ScriptedRunnable, Service]:
        runnable = ScriptedRunnable(*steps)
        change(runnable)
        service = Service(runnable, name="Stub")
        thread = threading.Thread(target=service.run)
        thread.start()
        started.append((runnable, service, thread))
        return runnable, service

    yield start
    for runnable, service, thread in started:
        if not service.ended.is_set():
            service.stop()
        thread.join(PATIENCE)
        runnable.shut()
        assert not thread.is_alive()


def run_steps(*steps: Any, **options: float) -> ScriptedRunnable:
    """Run the steps in this thread, to their end; `options` are arguments of `Service`."""
    runnable = ScriptedRunnable(*steps)
    try:
        service = Service(runnable, name="Stub", **options)
        service.run()
        assert service.ended.is_set() and runnable.taken
    finally:
        runnable.shut()
    return runnable


def test_steps_continue_until_one_returns_none() -> None:
    runnable = run_steps(0.0, 0, 0.001, -1.0, None, 0.0)
    assert (runnable.taken, runnable.closed, runnable.steps) == (5, 1, [0.0])


def test_no_error_of_a_step_ends_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="django_delayq")
    runnable = run_steps(
        StoreUnavailable("away"), RuntimeError("a bug"), ScriptFault("a fault"), OSError("x"), 0.0, None
    )
    assert (runnable.taken, runnable.closed) == (6, 1)


def test_an_outage_is_logged_once_when_it_begins_and_once_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="django_delayq")
    run_steps(*[StoreUnavailable("Redis is away")] * 3, 0.0, 0.0, None)
    assert [record.getMessage() for record in caplog.records] == [
        "Stub waits for Redis: Redis is away",
        "Stub works again",
    ]


def test_a_service_that_stops_during_an_outage_does_not_say_that_it_works(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="django_delayq")
    run_steps(StoreUnavailable("Redis is away"), None)
    assert [record.getMessage() for record in caplog.records] == ["Stub waits for Redis: Redis is away"]


def test_a_refused_password_is_logged_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="django_delayq")
    run_steps(*[StoreAuthError("wrong password")] * 3, 0.0, None)
    assert [record.getMessage() for record in caplog.records].count("Stub waits for Redis: wrong password") == 1
    caplog.clear()
    run_steps(*[StoreAuthError("wrong password")] * 3, 0.0, None, log_again=0.0)
    assert [record.getMessage() for record in caplog.records].count("Stub waits for Redis: wrong password") == 3


def test_a_bug_in_a_step_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    run_steps(RuntimeError("a bug"), None)
    [first, *_] = caplog.records
    assert first.levelname == "ERROR" and first.exc_info and "Stub" in first.getMessage()


@pytest.mark.parametrize(
    ("error", "longest"), [(StoreUnavailable(), 5.0), (ScriptFault(), 5.0), (StoreUnavailable(brief=True), 0.1)]
)
def test_failures_wait_longer_and_longer_up_to_a_limit(error: StoreError, longest: float) -> None:
    """While a slot moves to another server, the limit is short."""
    runnable = ScriptedRunnable()
    service = Service(runnable, name="Stub")
    waits = [service._on_failure("%s: %s", error) for _ in range(2_000)]
    runnable.stop()
    service.run()
    runnable.shut()
    for number, wait in enumerate(waits):
        ceiling = min(longest, 0.1 * 2 ** min(number, 20))
        assert ceiling / 2 <= wait <= ceiling


def test_a_step_without_failure_ends_the_backoff(running: Callable[..., tuple[ScriptedRunnable, Service]]) -> None:
    runnable, service = running(StoreUnavailable(), 0.0, StoreUnavailable(), LONG)
    assert runnable.sleeps.wait(PATIENCE)
    assert service._failures == 0


def test_wake_ends_a_sleep(running: Callable[..., tuple[ScriptedRunnable, Service]]) -> None:
    runnable, service = running(LONG, None)
    assert runnable.sleeps.wait(PATIENCE)
    service.wake()
    assert service.ended.wait(PATIENCE)
    assert runnable.taken == 2


def test_a_wake_during_a_step_is_not_lost(running: Callable[..., tuple[ScriptedRunnable, Service]]) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def step() -> float:
        inside.set()
        assert go_on.wait(PATIENCE)
        return LONG

    runnable, service = running(step, None)
    assert inside.wait(PATIENCE)
    service.wake()
    go_on.set()
    assert service.ended.wait(PATIENCE)


def test_a_thousand_wakes_are_one(running: Callable[..., tuple[ScriptedRunnable, Service]]) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def step() -> float:
        inside.set()
        assert go_on.wait(PATIENCE)
        # Not the sleep that the test waits for: that one comes after the wakes were consumed.
        return LONG + 1

    runnable, service = running(step, LONG, None)
    assert inside.wait(PATIENCE)
    for _ in range(100_000):
        service.wake()
    go_on.set()
    assert runnable.sleeps.wait(PATIENCE)
    service.wake()
    assert service.ended.wait(PATIENCE)
    assert runnable.taken == 3


def test_stop_reaches_a_sleeping_runnable(running: Callable[..., tuple[ScriptedRunnable, Service]]) -> None:
    runnable, service = running(LONG)
    assert runnable.sleeps.wait(PATIENCE)
    service.stop()
    assert service.ended.wait(PATIENCE)
    assert (runnable.stops, runnable.closed) == (1, 1)


def test_stop_reaches_a_runnable_that_waits_for_redis(running: Callable[..., tuple[ScriptedRunnable, Service]]) -> None:
    failed = threading.Event()

    def fail() -> None:
        failed.set()
        raise StoreUnavailable

    runnable, service = running(*[fail] * 1_000)
    assert failed.wait(PATIENCE)
    service.stop()
    assert service.ended.wait(PATIENCE)


def test_stop_before_the_first_step() -> None:
    runnable = ScriptedRunnable(LONG)
    service = Service(runnable, name="Stub")
    service.stop()
    service.run()
    runnable.shut()
    assert runnable.closed == 1


def test_a_notification_ends_a_sleep_and_is_consumed(running: Callable[..., tuple[ScriptedRunnable, Service]]) -> None:
    runnable, service = running(LONG, None)
    assert runnable.sleeps.wait(PATIENCE)
    runnable.socket_write.send(b"x")
    assert service.ended.wait(PATIENCE)
    assert runnable.wakeups == [1]


def test_without_a_socket_a_sleep_ends_by_the_timer_alone() -> None:
    runnable = ScriptedRunnable(0.001, None)
    runnable.on_listen = lambda: -1
    Service(runnable, name="Stub").run()
    runnable.shut()
    assert runnable.taken == 2


def test_a_runnable_that_cannot_listen_still_steps(running: Callable[..., tuple[ScriptedRunnable, Service]]) -> None:
    calls = []

    def listen() -> int:
        calls.append(1)
        raise StoreUnavailable("away")

    runnable, service = running(LONG, None, change=lambda runnable: setattr(runnable, "on_listen", listen))
    assert service.ended.wait(PATIENCE)
    assert runnable.taken == 2 and calls


def test_after_a_broken_connection_the_runnable_steps_on(
    running: Callable[..., tuple[ScriptedRunnable, Service]],
) -> None:
    def fail() -> None:
        raise StoreUnavailable("connection lost")

    runnable, service = running(LONG, None, change=lambda runnable: setattr(runnable, "after_wakeup", fail))
    assert runnable.sleeps.wait(PATIENCE)
    runnable.socket_write.send(b"x")
    assert service.ended.wait(PATIENCE)
    assert runnable.taken == 2


@pytest.mark.parametrize("where", ["on_listen", "after_wakeup"])
def test_a_bug_in_listening_does_not_end_the_loop(
    where: str, running: Callable[..., tuple[ScriptedRunnable, Service]]
) -> None:
    broken: list[int] = []

    def once() -> int:
        if not broken:
            broken.append(1)
            raise RuntimeError("a bug")
        return -1

    runnable, service = running(LONG, None, change=lambda runnable: setattr(runnable, where, once))
    assert runnable.sleeps.wait(PATIENCE)
    runnable.socket_write.send(b"x")
    assert service.ended.wait(PATIENCE)
    assert runnable.taken == 2, "the loop ended before its runnable did"


def test_a_wake_after_the_end_writes_into_no_other_pipe() -> None:
    runnable = ScriptedRunnable(None)
    service = Service(runnable, name="Stub")
    service.run()
    runnable.shut()
    # The numbers of a closed pipe would go to whatever is opened next: here these pipes.
    pipes = [os.pipe() for _ in range(4)]
    try:
        service.wake()
        for read, _ in pipes:
            os.set_blocking(read, False)
            with pytest.raises(BlockingIOError):
                os.read(read, 1)
    finally:
        for ends in pipes:
            for end in ends:
                os.close(end)


@pytest.mark.usefixtures("many_open_files")
def test_a_process_with_thousands_of_open_files_still_listens(
    running: Callable[..., tuple[ScriptedRunnable, Service]],
) -> None:
    # A worker of many threads has a database connection for each; select() knows 1,024 descriptors only.
    copies: list[int] = []

    def high(runnable: ScriptedRunnable) -> None:
        copies.append(fcntl.fcntl(runnable.socket_read, fcntl.F_DUPFD_CLOEXEC, 1_100))
        runnable.on_listen = lambda: copies[0]

    try:
        runnable, service = running(LONG, None, change=high)
        assert runnable.sleeps.wait(PATIENCE)
        runnable.socket_write.send(b"x")
        assert service.ended.wait(PATIENCE)
        assert runnable.taken == 2
    finally:
        for copy in copies:
            os.close(copy)


def test_a_failure_to_listen_is_logged_once_and_retried_less_and_less_often(
    running: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    tries: list[int] = []

    def refuse(runnable: ScriptedRunnable) -> None:
        def listen() -> int:
            tries.append(runnable.taken)
            raise StoreUnavailable("full")

        runnable.on_listen = listen

    # Each step succeeds, since it sends nothing to Redis, and the next follows at once.
    runnable, service = running(*[0.001] * 200, change=refuse)
    assert service.ended.wait(PATIENCE)
    assert runnable.taken == 201
    assert caplog.text.count("cannot listen") == 1
    assert "works again" not in caplog.text
    # Doubled from 0.1 s on, whatever the machine: 200 steps are over long before the 20th try is due.
    assert 1 <= len(tries) < 20


def test_a_runnable_that_lost_its_socket_and_then_redis_waits_between_its_steps(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time to listen again is over while steps fail; that must not cut the waits between them to nothing."""
    waits: list[float] = []
    real = select.select

    def noted(reads: list[int], writes: list[int], errors: list[int], seconds: float) -> Any:
        waits.append(seconds)
        return real(reads, writes, errors, min(seconds, 0.001))

    def lose(runnable: ScriptedRunnable) -> None:
        def fail() -> None:
            raise StoreUnavailable("connection lost")

        runnable.after_wakeup = fail

    monkeypatch.setattr(select, "select", noted)
    runnable, service = running(LONG, *[StoreUnavailable("away")] * 12, None, change=lose)
    assert runnable.sleeps.wait(PATIENCE)
    runnable.socket_write.send(b"x")
    assert service.ended.wait(PATIENCE)
    assert runnable.taken == 14
    # The last of twelve failures in a row: the longest wait, give or take its half.
    assert waits[-1] >= 2.5
    assert min(waits[-12:]) >= 0.05
