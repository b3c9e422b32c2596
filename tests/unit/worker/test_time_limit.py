"""TimeLimit: it raises TaskTimeout in the thread that runs too long, and nowhere else."""

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from time import monotonic

import pytest

from django_delayq.exceptions import TaskTimeout
from django_delayq.worker import time_limit
from django_delayq.worker.time_limit import TimeLimit

#: Seconds; far more than any of these tests needs. No test measures how long it took.
PATIENCE = 30.0
SOON, NEVER = 1_000, 3_600_000_000


def spin() -> None:
    """Run bytecode until an exception arrives."""
    give_up = monotonic() + PATIENCE
    while monotonic() < give_up:
        pass


def in_thread(work: Callable[[], None]) -> list[BaseException]:
    """Run `work` in a new thread; return what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(2 * PATIENCE)
    assert not thread.is_alive()
    return raised


def limited(limit_us: int, work: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        with TimeLimit(limit_us):
            work()

    return run


@pytest.fixture(autouse=True)
def undisturbed() -> Iterator[None]:
    """Fail the test in whose thread an exception arrives late."""
    yield
    for _ in range(1_000):
        pass


def test_a_task_over_its_limit_gets_a_timeout() -> None:
    for run in (lambda work: work(), in_thread):
        try:
            raised = run(limited(SOON, spin)) or []
        except TaskTimeout as error:
            raised = [error]
        assert [type(error) for error in raised] == [TaskTimeout]
        assert "timeout" in str(raised[0])


def test_if_no_thread_can_start_the_next_limit_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "_watch", time_limit._Watch())

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        limit = TimeLimit(SOON)
        with pytest.raises(RuntimeError, match="new thread"), limit:
            pass
        assert not limit.active
    test_a_task_over_its_limit_gets_a_timeout()


def test_a_limit_not_reached_changes_nothing() -> None:
    with TimeLimit(NEVER):
        pass
    with pytest.raises(ZeroDivisionError), TimeLimit(NEVER):
        1 / 0  # noqa: B018


def test_code_after_a_task_is_never_interrupted() -> None:
    # These limits end at about the same time as their code. Each raises inside the block, or not at all.
    timeouts = 0
    for _ in range(300):
        try:
            with TimeLimit(SOON):
                until = monotonic() + SOON / 1_000_000
                while monotonic() < until:
                    pass
        except TaskTimeout:
            timeouts += 1
        # Nothing may arrive here.
        for _ in range(200):
            pass
    assert 0 <= timeouts <= 300


def test_a_timeout_that_has_not_arrived_when_the_code_ends_is_cancelled() -> None:
    limit = TimeLimit(NEVER)

    def work() -> None:
        # The exit may cancel what expire() sent, if the interpreter does not check for exceptions in between.
        with limit:
            threading.Thread(target=limit.expire).start()
            spin()

    assert [type(error) for error in in_thread(work)] == [TaskTimeout]
    limit.expire()
    spin_a_little = sum(range(10_000))
    assert spin_a_little


def test_a_thread_can_be_traced_after_a_timeout() -> None:
    # A leftover timeout may make CPython 3.11 start a traced call again and again. Debuggers and coverage trace.
    for work in (spin, lambda: pytest.raises(TaskTimeout, spin)):
        in_thread(limited(SOON, work))
        threading.settrace(lambda *_: None)
        try:
            assert in_thread(lambda: None) == []
        finally:
            threading.settrace(None)  # type: ignore[arg-type]


def test_a_timeout_reaches_its_own_thread_only() -> None:
    begun, may_end = threading.Event(), threading.Event()
    others: list[BaseException] = []

    def bystander() -> None:
        with TimeLimit(NEVER):
            begun.set()
            while not may_end.is_set():
                pass

    thread = threading.Thread(target=lambda: others.extend(in_thread(bystander)))
    thread.start()
    try:
        assert begun.wait(PATIENCE)
        assert [type(error) for error in in_thread(limited(SOON, spin))] == [TaskTimeout]
    finally:
        may_end.set()
        thread.join(PATIENCE)
    assert others == []


def test_an_earlier_limit_set_later_is_kept() -> None:
    entered, may_end = threading.Event(), threading.Event()

    def late() -> None:
        with TimeLimit(NEVER):
            entered.set()
            may_end.wait(PATIENCE)

    thread = threading.Thread(target=late)
    thread.start()
    try:
        assert entered.wait(PATIENCE)
        assert [type(error) for error in in_thread(limited(SOON, spin))] == [TaskTimeout]
    finally:
        may_end.set()
        thread.join(PATIENCE)


@pytest.mark.parametrize(("outer", "inner"), [(SOON, NEVER), (NEVER, SOON)])
def test_the_shorter_of_two_nested_limits_raises(outer: int, inner: int) -> None:
    with pytest.raises(TaskTimeout), TimeLimit(outer), TimeLimit(inner):
        spin()


def test_an_outer_limit_still_holds_after_an_inner_one_raised() -> None:
    with pytest.raises(TaskTimeout), TimeLimit(1_000_000):
        with pytest.raises(TaskTimeout), TimeLimit(SOON):
            spin()
        spin()


def test_a_limit_that_raises_while_another_begins_breaks_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limit, "_watch", time_limit._Watch())
    interval = sys.getswitchinterval()
    # Threads take turns so often that the outer limit raises anywhere in the beginning of the inner one.
    sys.setswitchinterval(1e-6)
    # What raises in a callback of the garbage collector is ignored, and other tests set such callbacks.
    gc.disable()
    try:
        for _ in range(300):
            give_up = monotonic() + PATIENCE
            with pytest.raises(TaskTimeout), TimeLimit(SOON):
                while monotonic() < give_up:
                    with TimeLimit(NEVER):
                        pass
    finally:
        gc.enable()
        sys.setswitchinterval(interval)
    assert [type(error) for error in in_thread(limited(SOON, spin))] == [TaskTimeout]


def test_a_thread_can_be_timed_out_again_and_again() -> None:
    for _ in range(20):
        with pytest.raises(TaskTimeout), TimeLimit(SOON):
            spin()


def test_code_that_swallows_the_timeout_does_not_get_another() -> None:
    limit = TimeLimit(NEVER)
    with limit:
        with pytest.raises(TaskTimeout):
            # Not earlier: the timeout must arrive in here.
            threading.Thread(target=limit.expire).start()
            spin()
        limit.expire()
        for _ in range(10_000):
            pass


@pytest.mark.parametrize("days", [110_000, 999_999_999])
def test_a_limit_longer_than_a_lock_can_wait_does_not_break_other_limits(
    days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A new watch, so that a broken one affects this test only.
    monkeypatch.setattr(time_limit, "_watch", time_limit._Watch())
    with TimeLimit(timedelta(days=days) // timedelta(microseconds=1)):
        assert [type(error) for error in in_thread(limited(SOON, spin))] == [TaskTimeout]
    assert [type(error) for error in in_thread(limited(SOON, spin))] == [TaskTimeout]


def test_a_finished_limit_is_forgotten() -> None:
    # A worker that runs short tasks with a timeout of an hour must not keep an hour's worth of limits.
    for _ in range(10_000):
        with TimeLimit(NEVER):
            pass
    gc.collect()
    kept = sum(type(one) is TimeLimit for one in gc.get_objects())
    assert kept < 5_000
