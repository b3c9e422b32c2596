"""Every pool: each claim ends, even with an exception of a hostile class, and when the pool closes."""

import threading
from typing import Any

import pytest

from django_delayq.job.outcome import OutcomeKind
from django_delayq.worker.pools.base import Pool
from django_delayq.worker.pools.child import ChildProcess
from tests.integration.worker.pools.each_claim_ends.pools import Ledger, Make
from tests.sample_app import tasks
from tests.subprocesses import until

#: Threads and loops that are interrupted leave things unfinished, and the interpreter warns about that.
pytestmark = pytest.mark.filterwarnings("ignore")


class Meta(type):
    """A metaclass that raises SystemExit if the name of its class is read."""

    def __getattribute__(cls, name: str) -> Any:
        if name in ("__module__", "__qualname__", "__name__"):
            raise SystemExit(3)
        return super().__getattribute__(name)


class Hostile(Exception, metaclass=Meta):
    """An exception whose class and text cannot be read."""

    def __str__(self) -> str:
        raise KeyboardInterrupt

    __repr__ = __str__


def test_an_exception_whose_class_cannot_be_read_is_a_failure(pool: Pool, ledger: Ledger, make: Make) -> None:
    def fail() -> None:
        raise Hostile

    async def fail_async() -> None:
        raise Hostile

    claims = [make(fail), make(fail_async)]
    pool.submit(claims, ledger)
    for claim in claims:
        outcome = ledger.of(claim)
        assert outcome.kind is OutcomeKind.FAILED and "Hostile" in outcome.error
    assert pool.held == 0


def test_a_claim_that_has_not_begun_when_a_pool_closes_never_begins(
    pool: Pool, ledger: Ledger, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, wait_ready = threading.Event(), ChildProcess.wait_ready
    # The process takes longer to start than this test takes to close the pool.
    monkeypatch.setattr(ChildProcess, "wait_ready", lambda child: closed.wait(30) and wait_ready(child))
    pool.submit([claim := make(tasks.noop, suspect=True)], ledger)
    until(lambda: pool.queued == 0, what="its process to start")
    assert not pool.has_begun(claim)
    pool.close()
    closed.set()
    assert not pool.has_begun(claim)
    assert ledger.of(claim).kind is OutcomeKind.UNSTARTED
