"""Service: the loop around a part. The part here is a script of what each step does."""

import fcntl
import logging
import os
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_delayq.exceptions import ScriptFault, StoreAuthError, StoreUnavailable
from django_delayq.processes import service as service_module
from django_delayq.processes.service import Service

PATIENCE = 30.0
LONG = 3_600.0
Step = Callable[[], float | None]


class Part:
    """Play steps in order; end after the last one, or when asked to stop."""

    def __init__(self, *steps: Any) -> None:
        self.steps = list(steps)
        self.taken = 0
        self.stops = 0
        self.closed = 0
        self.heard_at: list[int] = []
        self.bell, self.ringer = socket.socketpair()
        self.on_listen: Callable[[], int] = self.bell.fileno
        self.on_heard: Callable[[], None] = lambda: None
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
        self.heard_at.append(self.taken)
        self.bell.recv(100)
        self.on_heard()

    def stop(self) -> None:
        self.stops += 1

    def close(self) -> None:
        self.closed += 1

    def shut(self) -> None:
        self.bell.close()
        self.ringer.close()


@pytest.fixture
def running() -> Iterator[Callable[..., tuple[Part, Service]]]:
    """Start services in threads; each must have ended when the test has."""
    started: list[tuple[Part, Service, threading.Thread]] = []

    def start(*steps: Any, change: Callable[[Part], None] = lambda part: None) -> tuple[Part, Service]:
        part = Part(*steps)
        change(part)
        service = Service(part, name="Stub")
        thread = threading.Thread(target=service.run)
        thread.start()
        started.append((part, service, thread))
        return part, service

    yield start
    for part, service, thread in started:
        if not service.ended.is_set():
            service.stop()
        thread.join(PATIENCE)
        part.shut()
        assert not thread.is_alive()


def played(*steps: Any) -> Part:
    """Run a part in this thread, to its end."""
    part = Part(*steps)
    try:
        service = Service(part, name="Stub")
        service.run()
        assert service.ended.is_set() and service.stepped.is_set()
    finally:
        part.shut()
    return part


def test_steps_go_on_until_one_says_none() -> None:
    part = played(0.0, 0, 0.001, -1.0, None, 0.0)
    assert (part.taken, part.closed, part.steps) == (5, 1, [0.0])


def test_nothing_a_step_raises_ends_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="django_delayq")
    part = played(StoreUnavailable("away"), RuntimeError("a bug"), ScriptFault("a fault"), OSError("x"), 0.0, None)
    assert (part.taken, part.closed) == (6, 1)


def test_an_outage_is_told_once_at_its_begin_and_once_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="django_delayq")
    played(*[StoreUnavailable("Redis is away")] * 3, 0.0, 0.0, None)
    assert [record.getMessage() for record in caplog.records] == [
        "Stub waits for Redis: Redis is away",
        "Stub works again",
    ]


def test_a_refusal_is_told_again_since_it_may_need_somebody(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, logger="django_delayq")
    played(*[StoreAuthError("wrong password")] * 3, 0.0, None)
    assert [record.getMessage() for record in caplog.records].count("Stub waits for Redis: wrong password") == 1
    caplog.clear()
    monkeypatch.setattr(service_module, "_LOG_AGAIN", 0.0)
    played(*[StoreAuthError("wrong password")] * 3, 0.0, None)
    assert [record.getMessage() for record in caplog.records].count("Stub waits for Redis: wrong password") == 3


def test_a_bug_in_a_step_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    played(RuntimeError("a bug"), None)
    [first, *_] = caplog.records
    assert first.levelname == "ERROR" and first.exc_info and "Stub" in first.getMessage()


def test_failures_wait_longer_and_longer_up_to_a_limit() -> None:
    part = Part()
    service = Service(part, name="Stub")
    waits = [service._on_failure("%s: %s", StoreUnavailable()) for _ in range(2_000)]
    part.stop()
    service.run()
    part.shut()
    for number, wait in enumerate(waits):
        ceiling = min(5.0, 0.1 * 2 ** min(number, 20))
        assert ceiling / 2 <= wait <= ceiling


def test_a_step_without_failure_ends_the_backoff(running: Callable[..., tuple[Part, Service]]) -> None:
    part, service = running(StoreUnavailable(), 0.0, StoreUnavailable(), LONG)
    assert part.sleeps.wait(PATIENCE)
    assert service._failures == 0


def test_wake_ends_a_sleep(running: Callable[..., tuple[Part, Service]]) -> None:
    part, service = running(LONG, None)
    assert part.sleeps.wait(PATIENCE)
    service.wake()
    assert service.ended.wait(PATIENCE)
    assert part.taken == 2


def test_a_wake_during_a_step_is_not_lost(running: Callable[..., tuple[Part, Service]]) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def step() -> float:
        inside.set()
        assert go_on.wait(PATIENCE)
        return LONG

    part, service = running(step, None)
    assert inside.wait(PATIENCE)
    service.wake()
    go_on.set()
    assert service.ended.wait(PATIENCE)


def test_a_thousand_wakes_are_one(running: Callable[..., tuple[Part, Service]]) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def step() -> float:
        inside.set()
        assert go_on.wait(PATIENCE)
        # Not the sleep that the test waits for: that one comes after the wakes were taken down.
        return LONG + 1

    part, service = running(step, LONG, None)
    assert inside.wait(PATIENCE)
    for _ in range(100_000):
        service.wake()
    go_on.set()
    assert part.sleeps.wait(PATIENCE)
    service.wake()
    assert service.ended.wait(PATIENCE)
    assert part.taken == 3


def test_stop_reaches_a_sleeping_part(running: Callable[..., tuple[Part, Service]]) -> None:
    part, service = running(LONG)
    assert part.sleeps.wait(PATIENCE)
    service.stop()
    assert service.ended.wait(PATIENCE)
    assert (part.stops, part.closed) == (1, 1)


def test_stop_reaches_a_part_that_waits_for_redis(running: Callable[..., tuple[Part, Service]]) -> None:
    part, service = running(*[StoreUnavailable()] * 1_000)
    assert service.stepped.wait(PATIENCE)
    service.stop()
    assert service.ended.wait(PATIENCE)


def test_stop_before_the_first_step() -> None:
    part = Part(LONG)
    service = Service(part, name="Stub")
    service.stop()
    service.run()
    part.shut()
    assert part.closed == 1


def test_a_bell_ends_a_sleep_and_is_taken_down(running: Callable[..., tuple[Part, Service]]) -> None:
    part, service = running(LONG, None)
    assert part.sleeps.wait(PATIENCE)
    part.ringer.send(b"x")
    assert service.ended.wait(PATIENCE)
    assert part.heard_at == [1]


def test_a_part_without_a_bell_sleeps_by_the_timer_alone() -> None:
    part = Part(0.001, None)
    part.on_listen = lambda: -1
    Service(part, name="Stub").run()
    part.shut()
    assert part.taken == 2


def test_a_part_that_cannot_listen_still_steps(running: Callable[..., tuple[Part, Service]]) -> None:
    calls = []

    def listen() -> int:
        calls.append(1)
        raise StoreUnavailable("away")

    part, service = running(LONG, None, change=lambda part: setattr(part, "on_listen", listen))
    assert service.ended.wait(PATIENCE)
    assert part.taken == 2 and calls


def test_a_bell_that_breaks_is_waited_out_and_the_part_steps_on(
    running: Callable[..., tuple[Part, Service]],
) -> None:
    def heard() -> None:
        raise StoreUnavailable("connection lost")

    part, service = running(LONG, None, change=lambda part: setattr(part, "on_heard", heard))
    assert part.sleeps.wait(PATIENCE)
    part.ringer.send(b"x")
    assert service.ended.wait(PATIENCE)
    assert part.taken == 2


@pytest.mark.parametrize("where", ["on_listen", "on_heard"])
def test_a_bug_in_listening_does_not_end_the_loop(where: str, running: Callable[..., tuple[Part, Service]]) -> None:
    broken: list[int] = []

    def once() -> int:
        if not broken:
            broken.append(1)
            raise RuntimeError("a bug")
        return -1

    part, service = running(LONG, None, change=lambda part: setattr(part, where, once))
    assert part.sleeps.wait(PATIENCE)
    part.ringer.send(b"x")
    assert service.ended.wait(PATIENCE)
    assert part.taken == 2, "the loop ended without the part having said so"


def test_a_wake_after_the_end_writes_into_nobody_elses_pipe() -> None:
    part = Part(None)
    service = Service(part, name="Stub")
    service.run()
    part.shut()
    # The numbers of the closed pipe go to whatever is opened next: here our own.
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


def test_a_process_with_thousands_of_open_files_still_hears(
    running: Callable[..., tuple[Part, Service]],
) -> None:
    # A worker of many threads has a database connection for each; select() knows 1,024 descriptors only.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1_200:
        pytest.skip("the system allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1_200), hard))
    copies: list[int] = []

    def high(part: Part) -> None:
        copies.append(fcntl.fcntl(part.bell, fcntl.F_DUPFD_CLOEXEC, 1_100))
        part.on_listen = lambda: copies[0]

    try:
        part, service = running(LONG, None, change=high)
        assert part.sleeps.wait(PATIENCE)
        part.ringer.send(b"x")
        assert service.ended.wait(PATIENCE)
        assert part.taken == 2
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for copy in copies:
            os.close(copy)


def test_what_cannot_listen_is_told_once_and_tried_more_and_more_seldom(
    running: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    tries: list[int] = []

    def refuse(part: Part) -> None:
        def listen() -> int:
            tries.append(part.taken)
            raise StoreUnavailable("full")

        part.on_listen = listen

    # Each step succeeds, since it asks nothing of Redis, and is ready for the next at once.
    part, service = running(*[0.001] * 200, change=refuse)
    assert service.ended.wait(PATIENCE)
    assert part.taken == 201
    assert caplog.text.count("cannot listen") == 1
    assert "works again" not in caplog.text
    # Doubled from 0.1 s on, whatever the machine: 200 steps are over long before the 20th try is due.
    assert 1 <= len(tries) < 20


def test_a_part_that_lost_its_bell_and_then_redis_waits_between_its_steps(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bell would be listened to again by now, were steps not failing: that may not cut their waits to nothing."""
    waits: list[float] = []
    real = service_module.readable

    def noted(descriptors: list[int], seconds: float) -> list[int]:
        waits.append(seconds)
        return real(descriptors, min(seconds, 0.001))

    def lose(part: Part) -> None:
        def heard() -> None:
            raise StoreUnavailable("connection lost")

        part.on_heard = heard

    monkeypatch.setattr(service_module, "readable", noted)
    part, service = running(LONG, *[StoreUnavailable("away")] * 12, None, change=lose)
    assert part.sleeps.wait(PATIENCE)
    part.ringer.send(b"x")
    assert service.ended.wait(PATIENCE)
    assert part.taken == 14
    # The last of twelve failures in a row: the longest wait, give or take its half.
    assert waits[-1] >= 2.5
    assert min(waits[-12:]) >= 0.05
