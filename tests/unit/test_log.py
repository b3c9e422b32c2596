"""Log: nothing that a project's handlers raise comes out of the package's logger."""

import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from django_delayq.exceptions import StoreUnavailable
from django_delayq.logs import logger
from django_delayq.processes.service import Service
from tests.unit.processes.test_service import ScriptedRunnable


class Broken(logging.Handler):
    """A handler whose database is away."""

    def emit(self, record: logging.LogRecord) -> None:
        raise ConnectionError("the log's database is away")


@pytest.fixture
def broken() -> Iterator[None]:
    """Have the package's log go to a handler that raises."""
    handler = Broken()
    logger.logger.addHandler(handler)
    yield
    logger.logger.removeHandler(handler)


def test_a_handler_that_raises_is_reported_on_stderr(broken: None, capsys: pytest.CaptureFixture[str]) -> None:
    logger.warning("a sentence")
    logger.exception("another one")
    assert capsys.readouterr().err.count("ConnectionError: the log's database is away") == 2


class Leaving(logging.Handler):
    """A handler that ends the thread that logs."""

    def __init__(self, error: type[BaseException]) -> None:
        super().__init__()
        self._error = error

    def emit(self, record: logging.LogRecord) -> None:
        raise self._error


@pytest.fixture(params=[SystemExit, KeyboardInterrupt])
def leaving(request: pytest.FixtureRequest) -> Iterator[type[BaseException]]:
    """Have the package's log go to a handler that raises this."""
    handler = Leaving(request.param)
    logger.logger.addHandler(handler)
    yield request.param
    logger.logger.removeHandler(handler)


def test_a_handler_that_exits_ends_no_thread(leaving: type[BaseException], capsys: pytest.CaptureFixture[str]) -> None:
    went_on = threading.Event()

    def work() -> None:
        logger.warning("a sentence")
        went_on.set()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert went_on.is_set()
    assert leaving.__name__ in capsys.readouterr().err


def test_ctrl_c_in_a_handler_ends_the_program(leaving: type[BaseException]) -> None:
    with pytest.raises(leaving):
        logger.warning("a sentence")


def test_a_closed_stderr_is_no_reason_to_raise(broken: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/null", "w") as closed:
        monkeypatch.setattr(sys, "stderr", closed)
    logger.warning("a sentence")


def test_a_record_names_the_line_of_its_caller(caplog: pytest.LogCaptureFixture) -> None:
    logger.warning("a sentence")
    assert caplog.records[0].funcName == "test_a_record_names_the_line_of_its_caller"


def test_a_service_continues_if_its_errors_cannot_be_logged(broken: None) -> None:
    steps: list[Any] = [RuntimeError("a bug"), StoreUnavailable("away"), 0.0, None]
    part = ScriptedRunnable(*steps)
    Service(part, name="Stub").run()
    part.shut()
    assert part.taken == 4
