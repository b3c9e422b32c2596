"""Done log: few done jobs have a line each, of many the rest is counted, and no job is left out or counted twice."""

import io
import logging
import os
import re
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_delayq.job.ids import next_id
from django_delayq.job.job import Job
from django_delayq.job.outcome import Outcome, OutcomeKind
from django_delayq.logs import TerminalHandler, logger
from django_delayq.metrics import MetricsBuffer, Stats
from django_delayq.processes.emitter import emit_now, emitter
from django_delayq.signals import job_finished
from django_delayq.worker import done_log as module
from django_delayq.worker import settlement
from django_delayq.worker.done_log import DoneLog
from tests.factories import claim_for
from tests.testing_helpers.docs.pages import runs, shown

SLOW_US = 1_000_000
#: The line that the page about logs shows.
SHOWN = shown("docs/running/logging.md", "text")


class Moment:
    """A clock, and the one emission that waits for its moment."""

    now = 100.0

    def __init__(self) -> None:
        self.armed: list[tuple[float, Callable[[], object]]] = []

    def set_timed_emission(self, moment: float, emission: Callable[[], object]) -> None:
        self.armed = [(moment, emission)]

    def pass_time(self, seconds: float) -> None:
        """Move the clock, and carry out what is due."""
        self.now += seconds
        due = [emission for moment, emission in self.armed if moment <= self.now]
        if due:
            self.armed = []
        for emission in due:
            emission()


@pytest.fixture
def terminal(root: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What a worker without LOGGING prints: the only handler of the package's records, for INFO."""
    package, text = logger.logger, io.StringIO()
    monkeypatch.setattr(package, "handlers", [TerminalHandler(text)])
    monkeypatch.setattr(package, "parent", root)
    before = package.level
    package.setLevel(logging.INFO)
    yield text
    package.setLevel(before)


@pytest.fixture
def root() -> logging.Logger:
    """A root logger without the handlers of pytest."""
    return logging.Logger("root")


@pytest.fixture
def moment() -> Moment:
    return Moment()


@pytest.fixture
def log(moment: Moment) -> DoneLog:
    return DoneLog(set_timed_emission=moment.set_timed_emission, clock=lambda: moment.now)


def lines_of(log: DoneLog, *run_us: int) -> list[bool]:
    """Return which of the jobs of one exchange have their own line."""
    with log.choosing() as has_line:
        return [has_line(each) for each in run_us]


def test_few_jobs_have_a_line_each(log: DoneLog, moment: Moment, terminal: io.StringIO) -> None:
    for _ in range(5):
        assert all(lines_of(log, *[10] * module._LINES))
        moment.pass_time(1)
    assert not moment.armed and not terminal.getvalue()


@runs(SHOWN)
def test_of_many_jobs_the_rest_of_the_second_is_counted(log: DoneLog, moment: Moment, terminal: io.StringIO) -> None:
    assert lines_of(log, *[10] * (module._LINES - 1)) == [True] * (module._LINES - 1)
    moment.pass_time(0.5)
    assert lines_of(log, 10, 10, 10) == [True, False, False]
    assert lines_of(log, *range(1_000, 99_000, 1_000)) == [False] * 98
    moment.pass_time(0.4)
    assert not terminal.getvalue()
    moment.pass_time(0.1)
    assert terminal.getvalue() == "100 more jobs done in the last second, p99 97.00 ms\n"
    assert SHOWN.endswith(terminal.getvalue().replace("100", "1,204").replace("97.00", "3.12"))
    assert lines_of(log, 10) == [True]


def test_each_second_has_lines_and_a_sum_of_its_own(log: DoneLog, moment: Moment, terminal: io.StringIO) -> None:
    own = 0
    for count in (1_211, 11, 3, 500):
        own += sum(lines_of(log, *[3_000] * count))
        moment.pass_time(1)
    assert own == 3 * module._LINES + 3
    assert re.findall(r"^([\d,]+) more (jobs?) ", terminal.getvalue(), re.M) == [
        ("1,201", "jobs"),
        ("1", "job"),
        ("490", "jobs"),
    ]


def test_a_sum_that_comes_late_says_of_how_many_seconds_it_is(
    log: DoneLog, moment: Moment, terminal: io.StringIO
) -> None:
    """A slow receiver holds up the emitter's thread while the worker continues."""
    lines_of(log, *[10] * (module._LINES + 5))
    moment.now += 3
    assert sum(lines_of(log, *[10] * (module._LINES + 5))) == module._LINES
    moment.pass_time(1)
    assert terminal.getvalue() == "10 more jobs done in the last 4 seconds, p99 0.01 ms\n"


def test_a_sum_whose_emission_was_lost_comes_a_second_later(
    log: DoneLog, moment: Moment, terminal: io.StringIO
) -> None:
    lines_of(log, *[10] * (module._LINES + 5))
    moment.armed = []
    moment.pass_time(1)
    lines_of(log, 10)
    moment.pass_time(1)
    assert terminal.getvalue().startswith("5 more jobs done in the last 2 seconds")


def test_a_slow_job_among_many_has_its_line_and_is_in_no_sum(
    log: DoneLog, moment: Moment, terminal: io.StringIO
) -> None:
    lines_of(log, *[10] * module._LINES)
    assert lines_of(log, 10, SLOW_US - 1, SLOW_US, 10) == [False, False, True, False]
    moment.pass_time(1)
    assert terminal.getvalue().startswith("3 more jobs ")


@pytest.mark.usefixtures("terminal")
def test_with_debug_each_job_has_a_line(log: DoneLog, moment: Moment) -> None:
    logger.logger.setLevel(logging.DEBUG)
    assert all(lines_of(log, *[10] * 100))
    assert not moment.armed


@pytest.mark.usefixtures("terminal")
def test_a_log_without_info_has_neither_lines_nor_sums(log: DoneLog, moment: Moment) -> None:
    logger.logger.setLevel(logging.ERROR)
    assert not any(lines_of(log, *[SLOW_US] * 100))
    assert not moment.armed


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("on_root", [False, True])
def test_a_handler_of_the_project_for_info_gets_each_line(
    log: DoneLog, moment: Moment, root: logging.Logger, on_root: bool
) -> None:
    lines_of(log, *[10] * 100)
    (root if on_root else logger.logger).addHandler(logging.Handler(logging.INFO))
    assert all(lines_of(log, *[10] * 100))
    # The sum of those before.
    assert len(moment.armed) == 1


@pytest.mark.usefixtures("terminal")
def test_a_handler_of_the_project_for_errors_alone_changes_nothing(log: DoneLog) -> None:
    logger.logger.addHandler(logging.Handler(logging.ERROR))
    assert sum(lines_of(log, *[10] * 100)) == module._LINES


@pytest.mark.usefixtures("terminal")
def test_a_fork_begins_without_counted_jobs_and_with_a_free_lock() -> None:
    with module.done_log.choosing() as has_line:
        assert not all(has_line(10) for _ in range(100))
        child = os.fork()
        if child == 0:
            try:
                # It would wait for a held lock forever.
                signal.alarm(20)
                own = sum(lines_of(module.done_log, *[10] * 100))
                os._exit(0 if (own, len(module.done_log._run_us)) == (module._LINES, 100 - module._LINES) else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert emitter.flush()


def settle(log: DoneLog, outcomes: list[Outcome], monkeypatch: pytest.MonkeyPatch, *, lost: int = 0) -> MetricsBuffer:
    """Emit such outcomes as one exchange does; the first `lost` of them lost their leases."""
    monkeypatch.setattr(settlement, "done_log", log)
    metrics = MetricsBuffer()
    claims = [claim_for(Job(raw_id=next_id(), shard=0, task="shop.t", queue="q")) for _ in outcomes]
    settled = [
        (settlement.decide_settlement(claim, outcome, worker="w"), outcome)
        for claim, outcome in zip(claims, outcomes, strict=True)
    ]
    leases = frozenset(claim.lease for claim in claims[:lost])
    settlement.emit_all(settled, lost=leases, metrics=metrics, emit=emit_now)
    return metrics


def succeeded(count: int) -> list[Outcome]:
    return [Outcome(kind=OutcomeKind.SUCCEEDED, began=0.0, run_us=10)] * count


def test_failures_among_many_have_their_lines(
    log: DoneLog, moment: Moment, terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = Outcome(kind=OutcomeKind.FAILED, error="ValueError: no")
    slow = Outcome(kind=OutcomeKind.SUCCEEDED, began=0.0, run_us=SLOW_US)
    outcomes = [*succeeded(50), failed, slow, *succeeded(50)]
    settle(log, outcomes, monkeypatch)
    moment.pass_time(1)
    text = terminal.getvalue()
    assert text.count("failed, attempt 1; next in ") == 1
    assert text.count("done in 1.000 s") == 1
    assert text.count("done in 0.000 s") == module._LINES
    assert f"{100 - module._LINES} more jobs done" in text


def test_a_job_whose_lease_was_lost_is_in_no_sum(
    log: DoneLog, moment: Moment, terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(log, succeeded(50), monkeypatch, lost=3)
    moment.pass_time(1)
    assert terminal.getvalue().count("lease lost") == 3
    assert f"{47 - module._LINES} more jobs done" in terminal.getvalue()


@pytest.mark.usefixtures("terminal")
def test_receivers_and_metrics_get_the_jobs_without_a_line(log: DoneLog, monkeypatch: pytest.MonkeyPatch) -> None:
    received = []

    def receive(job_id: str, outcome: Any, decision: Any, **_: Any) -> None:
        received.append((job_id, outcome.kind, decision.action))

    job_finished.connect(receive)
    try:
        metrics = settle(log, succeeded(50), monkeypatch)
    finally:
        job_finished.disconnect(receive)
    assert len(set(received)) == 50
    assert {each[1:] for each in received} == {("succeeded", "acknowledge")}
    assert sum(Stats.of(row).done for row in metrics.take().values()) == 50
