"""Starting: services run side by side until all have ended, and an error in one of them stops them all."""

import gc
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.management.base import CommandError

from django_delayq.exceptions import StoreAuthError
from django_delayq.logs import logger
from django_delayq.management.starting import open_store, run_services
from django_delayq.processes.service import Runnable, Service
from django_delayq.processes.shutdown import Shutdown
from django_delayq.store.store import Store
from django_delayq.testing.local_redis import LocalRedisServer

#: Seconds after which a part ends by itself, so that a failing test ends.
PATIENCE = 15.0


class Sleeper(Runnable):
    """Sleeps until it is stopped."""

    ended = False

    def __init__(self) -> None:
        self.until = time.monotonic() + PATIENCE

    def step(self) -> float | None:
        return None if self.stopped or time.monotonic() > self.until else PATIENCE

    def close(self) -> None:
        self.ended = True


class Leaver(Runnable):
    """Ends its thread, as a project's signal receiver may by sys.exit()."""

    def step(self) -> float | None:
        raise SystemExit(3)


class Hanging(Sleeper):
    """Gives a job back at each step, and does not end."""

    def __init__(self, shutdown: Shutdown) -> None:
        super().__init__()
        self._shutdown = shutdown

    def step(self) -> float | None:
        if time.monotonic() < self.until:
            self._shutdown.set_deadline()
        return super().step()


@pytest.fixture(autouse=True)
def _restored_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    gc.unfreeze()
    for number, handler in before.items():
        signal.signal(number, handler)


# The error ends its thread too, and Python prints it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_that_ends_one_service_ends_all_and_is_raised() -> None:
    parts = [Sleeper(), Leaver(), Sleeper()]
    with pytest.raises(CommandError, match="Part 1 died") as raised:
        run_services([Service(part, name=f"Part {number}") for number, part in enumerate(parts)], [])
    assert isinstance(raised.value.__cause__, SystemExit)
    for thread in threading.enumerate():
        if thread.name == "Part 1":
            thread.join()
    assert parts[0].stopped and parts[2].stopped
    assert parts[0].ended and parts[2].ended  # type: ignore[attr-defined]


def test_the_process_ends_with_its_last_service() -> None:
    sleeper, shutdown = Sleeper(), Shutdown()
    run_services([Service(sleeper, name="Sleeper")], [], ready=sleeper.stop, shutdown=shutdown)
    assert sleeper.ended and not shutdown.has_deadline


def test_a_service_is_not_waited_for_once_jobs_were_given_back(caplog: pytest.LogCaptureFixture) -> None:
    shutdown = Shutdown()
    services = [Service(Hanging(shutdown), name="Hanging"), Service(Sleeper(), name="Sleeper")]
    run_services(services, [], shutdown=shutdown)
    assert shutdown.has_deadline and shutdown.optional_timeout < 0.1
    # A thread of an earlier test may log, too.
    ours = [record.args for record in caplog.records if record.name == "django_delayq"]
    assert sorted(ours) == [("Hanging",), ("Sleeper",)]  # type: ignore[type-var]
    for service in services:
        service.stop()
        assert service.ended.wait(10)


def test_a_start_that_waits_for_its_redis_outlives_a_broken_log(
    start_redis: Callable[..., LocalRedisServer], settings: Any
) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise ConnectionError("the log's database is away")

    server = start_redis()
    settings.DELAYQ = {"REDIS": server.url}
    with server.client() as client:
        client.config_set("requirepass", "changed")
    handler = Broken()
    logger.logger.addHandler(handler)
    try:
        store = open_store()
    finally:
        logger.logger.removeHandler(handler)
    assert isinstance(store, Store)
    with pytest.raises(StoreAuthError):
        store.check_servers()
