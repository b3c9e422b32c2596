"""Emitter: signals of settled attempts are sent in order, beside the worker's loop, and none is lost."""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest
from django.db import transaction

from django_delayq.processes import emitter as module
from django_delayq.processes.emitter import Emitter

PATIENCE = 30.0


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What slow receivers wait for; open after the test."""
    event = threading.Event()
    yield event
    event.set()


def test_emit_does_not_wait_for_emissions_which_are_carried_out_in_order(gate: threading.Event) -> None:
    emitter, done = Emitter(), list[int]()
    emitter.emit([partial(gate.wait, PATIENCE)])
    emitter.emit([partial(done.append, number) for number in range(100)])
    assert not done
    gate.set()
    assert emitter.flush(PATIENCE)
    assert done == list(range(100))


def test_emit_waits_while_too_many_emissions_are_left_and_loses_none(
    gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    emitter, done = Emitter(), list[int]()
    emitter.emit([partial(gate.wait, PATIENCE)])
    count = 3 * module._LIMIT

    def emit() -> None:
        for number in range(count):
            emitter.emit([partial(done.append, number)])

    thread, most = threading.Thread(target=emit), 0
    thread.start()
    until = time.monotonic() + PATIENCE
    while emitter._left < module._LIMIT:
        assert time.monotonic() < until
    # sleep(0) hands the interpreter to the other thread: a thread that does not wait would add more.
    for _ in range(1_000):
        most = max(most, emitter._left)
        time.sleep(0)
    assert thread.is_alive()
    assert most <= module._LIMIT
    gate.set()
    thread.join(PATIENCE)
    assert emitter.flush(PATIENCE)
    assert done == list(range(count))
    # It waited many times.
    assert caplog.text.count("this worker waits for them") == 1


def test_emit_waits_no_longer_once_the_process_ends(gate: threading.Event) -> None:
    emitter, done = Emitter(), list[int]()
    emitter.emit([partial(gate.wait, PATIENCE), *[int] * module._LIMIT])
    thread = threading.Thread(target=emitter.emit, args=[[partial(done.append, 1)]])
    thread.start()
    emitter.lift_limit()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    gate.set()
    assert emitter.flush(PATIENCE)
    assert done == [1]


@pytest.mark.parametrize("again", [True, False], ids=["the next emission", "a flush"])
def test_if_no_thread_can_start_the_next_call_tries_again(
    again: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    emitter, done = Emitter(), list[int]()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        emitter.emit([partial(done.append, 1)])
    assert "can't start new thread" in caplog.text
    if again:
        emitter.emit([partial(done.append, 2)])
    assert emitter.flush(PATIENCE)
    assert done == [1, 2][: 1 + again]


def test_no_exception_ends_the_thread_and_each_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    emitter, done = Emitter(), list[int]()

    def broken() -> None:
        raise ValueError("no")

    emitter.emit([partial(sys.exit, 3), broken, partial(done.append, 1)])
    assert emitter.flush(PATIENCE)
    assert done == [1]
    assert caplog.text.count("could not be announced") == 2


def test_an_exception_between_two_emissions_does_not_end_the_thread() -> None:
    emitter, done = Emitter(), list[int]()
    emitter.emit([int])
    assert emitter.flush(PATIENCE)
    assert emitter._thread is not None
    exception = ctypes.c_ulong(emitter._thread.ident or 0), ctypes.py_object(SystemExit)
    assert ctypes.pythonapi.PyThreadState_SetAsyncExc(*exception) == 1
    for number in range(10):
        emitter.emit([partial(done.append, number)])
    assert emitter.flush(PATIENCE)
    assert done == list(range(10))


def test_a_timed_emission_is_carried_out_at_its_moment_though_nothing_else_is_emitted() -> None:
    emitter, done = Emitter(), threading.Event()
    moment = time.monotonic() + 0.05
    emitter.set_timed_emission(moment, done.set)
    assert done.wait(PATIENCE)
    assert time.monotonic() >= moment


def test_a_timed_emission_wakes_the_thread_that_waits_without_end() -> None:
    emitter, done = Emitter(), threading.Event()
    emitter.emit([int])
    assert emitter.flush(PATIENCE)
    emitter.set_timed_emission(time.monotonic() + 0.05, done.set)
    assert done.wait(PATIENCE)


def test_a_timed_emission_comes_before_those_that_wait(gate: threading.Event) -> None:
    emitter, done, begun = Emitter(), list[int](), threading.Event()
    emitter.emit([begun.set, partial(gate.wait, PATIENCE)])
    assert begun.wait(PATIENCE)
    emitter.emit([partial(done.append, number) for number in (2, 3)])
    emitter.set_timed_emission(time.monotonic(), partial(done.append, 1))
    gate.set()
    assert emitter.flush(PATIENCE)
    assert done == [1, 2, 3]


def test_a_flush_carries_out_the_timed_emission_at_once_and_once() -> None:
    emitter, done = Emitter(), list[int]()
    emitter.set_timed_emission(time.monotonic() + 10 * PATIENCE, partial(done.append, 1))
    emitter.set_timed_emission(time.monotonic() + 10 * PATIENCE, partial(done.append, 2))
    assert emitter.flush(PATIENCE) and emitter.flush(PATIENCE)
    assert done == [2]


def test_emissions_that_are_not_carried_out_in_time_are_logged(
    gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    emitter = Emitter()
    emitter.emit([partial(gate.wait, PATIENCE), int, int])
    assert not emitter.flush(0.01)
    assert "3 settled attempts were not announced" in caplog.text


def test_a_fork_begins_without_emissions(gate: threading.Event) -> None:
    module.emitter.emit([partial(gate.wait, PATIENCE)])
    child = os.fork()
    if child == 0:
        try:
            done = list[int]()
            module.emitter.emit([partial(done.append, 1)])
            module.emitter.flush(PATIENCE)
            os._exit(0 if done == [1] else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.django_db(transaction=True)
def test_a_receiver_that_leaves_a_transaction_open_is_named_as_such(caplog: pytest.LogCaptureFixture) -> None:
    def leaves() -> None:
        transaction.atomic().__enter__()

    emitter = Emitter()
    emitter.emit([leaves])
    assert emitter.flush(PATIENCE)
    assert "A receiver of a signal left a transaction open on 'default'; it was rolled back" in caplog.messages
