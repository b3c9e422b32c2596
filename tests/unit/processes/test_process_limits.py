"""Process limits: a failure restores a lowered number of open files, and a lowered recursion limit ends a service."""

import resource
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from django_delayq.processes.service import Runnable, Service
from django_delayq.worker.outcomes import failed

FILES = resource.RLIMIT_NOFILE


@pytest.fixture(autouse=True)
def _kept() -> Iterator[None]:
    files, recursion = resource.getrlimit(FILES), sys.getrecursionlimit()
    yield
    resource.setrlimit(FILES, files)
    sys.setrecursionlimit(recursion)


class Steps(Runnable):
    """A runnable whose steps raise these errors one by one, and which ends after them."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    def step(self) -> float | None:
        if not self.errors:
            return None
        raise self.errors.pop(0)


def run_service(runnable: Steps) -> BaseException | None:
    """Run a service to its end; return the error that ended it."""
    return run(Service(runnable, name="tried", longest_wait=0.01))


def run(service: Service) -> BaseException | None:
    def run_to_end() -> None:
        try:
            service.run()
        except RuntimeError as error:
            assert error is service.error

    thread = threading.Thread(target=run_to_end)
    thread.start()
    thread.join(10)
    assert service.ended.is_set()
    return service.error


def failed_attempt() -> None:
    failed(OSError("Too many open files"))


def failed_step() -> None:
    assert run_service(Steps(OSError("Too many open files"))) is None


@pytest.mark.parametrize("failure", [failed_attempt, failed_step])
def test_open_files_are_allowed_again_after_a_failure(failure: Callable[[], None]) -> None:
    now, most = resource.getrlimit(FILES)
    resource.setrlimit(FILES, (now - 10, most))
    failure()
    assert resource.getrlimit(FILES) == (now, most)


def test_more_open_files_stay_allowed_after_a_failure() -> None:
    now, most = resource.getrlimit(FILES)
    resource.setrlimit(FILES, (now - 10, most))
    failed_attempt()
    resource.setrlimit(FILES, (most, most))
    failed_attempt()
    assert resource.getrlimit(FILES) == (most, most)


def test_a_lowered_recursion_limit_ends_a_service() -> None:
    limit = sys.getrecursionlimit()
    service = Service(Steps(), name="tried")
    sys.setrecursionlimit(limit - 10)
    assert f"from {limit} to {limit - 10}" in str(run(service))
    assert sys.getrecursionlimit() == limit


def test_a_limit_set_before_a_service_starts_does_not_end_it() -> None:
    sys.setrecursionlimit(sys.getrecursionlimit() - 10)
    assert run_service(Steps()) is None


def test_a_raised_recursion_limit_ends_no_service() -> None:
    sys.setrecursionlimit(sys.getrecursionlimit() + 500)
    assert run_service(Steps()) is None
