"""Attempts: the record of ended attempts, capped, and readable whatever became of it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from django_delayq.job.attempts import EARLIER_ERROR, HISTORY, LAST_ERROR, NO_ATTEMPTS, AttemptHistory

#: No verdict from how long an example took: the machine may be busy.


def added(attempts: AttemptHistory, number: int, *, error: str = "", suspect: bool = False) -> AttemptHistory:
    return attempts.add(
        worker=f"w{number}",
        started_us=number,
        ended_us=number + 1,
        ending="failed",
        error=error,
        crash_suspected=suspect,
    )


def test_a_waiting_job_has_no_record() -> None:
    assert AttemptHistory.unpack(None) is NO_ATTEMPTS
    assert (NO_ATTEMPTS.ended, NO_ATTEMPTS.crash_suspected, NO_ATTEMPTS.last_error) == (0, False, "")


def test_a_record_survives() -> None:
    attempts = added(added(NO_ATTEMPTS, 1, error="first\n\0\ud800 ü"), 2, error="second", suspect=True)
    assert AttemptHistory.unpack(attempts.pack()) == attempts
    assert (attempts.ended, attempts.crash_suspected, attempts.last_error) == (2, True, "second")


def test_only_the_last_attempt_makes_a_crash_suspected() -> None:
    assert not added(added(NO_ATTEMPTS, 1, suspect=True), 2).crash_suspected


def test_what_is_no_attempt_is_counted_apart_from_the_attempts() -> None:
    attempts = added(NO_ATTEMPTS, 1, error="no").snoozed().cut_short().cut_short()
    assert (attempts.ended, attempts.snoozes, attempts.interruptions) == (1, 1, 2)
    assert (attempts.interrupted, attempts.recovered, attempts.crash_suspected) == (True, True, False)
    assert AttemptHistory.unpack(attempts.pack()) == attempts
    assert added(attempts, 2).recovered is attempts.snoozed().recovered is False


def test_a_wait_for_code_changes_nothing_that_is_known_of_the_last_run() -> None:
    crashed = added(NO_ATTEMPTS, 1, suspect=True)
    waits = crashed.waited("unknown task", now_us=5).waited("newer version", now_us=9)
    assert (waits.waiting_since_us, waits.waiting_for) == (5, "newer version")
    assert (waits.ended, waits.crash_suspected, waits.history) == (1, True, crashed.history)
    assert AttemptHistory.unpack(waits.pack()) == waits
    assert waits.snoozed().waiting_since_us == 0 and waits.cut_short().waiting_for == ""


def test_a_record_without_such_counts_is_stored_as_before() -> None:
    attempts = added(NO_ATTEMPTS, 1, error="no")
    assert attempts.pack()[3:4] == b"["
    assert attempts.snoozed().pack()[3:4] == b"{"


@pytest.mark.parametrize("count", [b"-1", b"true", b"1.5", b'"1"', b"null", b"9007199254740992"])
def test_a_damaged_count_reads_as_none(count: bytes) -> None:
    found = AttemptHistory.unpack(b'\0\7\1{"snoozes":' + count + b',"interruptions":3,"waiting_for":7}')
    assert (found.ended, found.snoozes, found.interruptions, found.waiting_for) == (7, 0, 3, "")


def test_scripts_read_only_the_first_three_bytes() -> None:
    attempts = added(added(NO_ATTEMPTS, 1), 2, suspect=True)
    assert attempts.pack()[:3] == b"\0\2\1"
    assert added(attempts, 3).pack()[:3] == b"\0\3\0"


def test_history_is_limited_and_the_number_of_attempts_is_not() -> None:
    attempts = NO_ATTEMPTS
    for number in range(1, 1_001):
        attempts = added(attempts, number, error="x" * 100_000)
    assert attempts.ended == 1_000
    assert [entry["worker"] for entry in attempts.history] == [f"w{n}" for n in range(1_001 - HISTORY, 1_001)]
    assert len(attempts.pack()) < LAST_ERROR + HISTORY * (EARLIER_ERROR + 200)


def test_a_long_error_keeps_its_end() -> None:
    attempts = added(NO_ATTEMPTS, 1, error="x" * 100_000 + "ValueError: the end")
    assert stored(attempts.last_error) == LAST_ERROR
    assert attempts.last_error.startswith("…") and attempts.last_error.endswith("ValueError: the end")
    earlier = added(attempts, 2).history[0]["error"]
    assert stored(earlier) == EARLIER_ERROR and earlier.endswith("ValueError: the end")


@pytest.mark.parametrize("letter", ["é", "😀", "\0", "\ud800", '"', "\\", "\n"])
def test_an_error_takes_at_most_8_kib_in_redis_in_any_script(letter: str) -> None:
    for length in (1_360, 1_370, 8_192, 100_000):
        attempts = added(NO_ATTEMPTS, 1, error=letter * length + "end")
        assert stored(attempts.last_error) <= LAST_ERROR and attempts.last_error.endswith(f"{letter}end")
        assert len(attempts.pack()) < LAST_ERROR + 200
    short = added(NO_ATTEMPTS, 1, error=letter * 600)
    assert short.last_error == letter * 600


def stored(text: str) -> int:
    """Return the bytes of a text in a record."""
    return len(json.dumps(text)) - 2


def test_the_number_of_attempts_stops_at_its_maximum() -> None:
    assert AttemptHistory.unpack(AttemptHistory(ended=70_000).pack()).ended == 65_535


@pytest.mark.parametrize(
    "tail", [b"", b"{", b"[", b"null", b"5", b'"text"', b'{"a":1}', b"[1,null,[]]", b"\xff\xfe", b"[" * 100_000]
)
def test_a_damaged_history_is_dropped_but_never_the_count(tail: bytes) -> None:
    found = AttemptHistory.unpack(b"\0\7\1" + tail)
    assert (found.ended, found.crash_suspected, found.history, found.last_error) == (7, True, (), "")
    assert added(found, 8, error="new").ended == 8


@pytest.mark.parametrize("record", [b"", b"\0", b"\0\1"])
def test_a_record_without_its_head_is_empty(record: bytes) -> None:
    assert AttemptHistory.unpack(record) == NO_ATTEMPTS


def test_entries_of_another_shape_are_reduced_to_known_fields() -> None:
    found = AttemptHistory.unpack(b'\0\1\0[{"error":7,"new":true},{}]')
    assert found.ended == 1 and found.last_error == ""
    assert AttemptHistory.unpack(added(found, 2, error="e").pack()).last_error == "e"


@pytest.mark.parametrize("error", ["plain", '},{"error":"not this one"', '\\"},{"error":"nor this one"}]'])
def test_the_last_attempt_is_read_without_the_earlier_ones(error: str) -> None:
    attempts = added(added(added(NO_ATTEMPTS, 1), 2, error=error), 3, error=error, suspect=True)
    found = AttemptHistory.unpack(attempts.pack(), last_only=True)
    assert found.history == attempts.history[-1:]
    assert (found.ended, found.crash_suspected, found.last_error) == (3, True, error)
    # Behind a snooze the record is an object, whose counts are read, too.
    whole = AttemptHistory.unpack(attempts.snoozed().pack(), last_only=True)
    assert (whole.snoozes, whole.last_error) == (1, error)


def test_a_last_attempt_with_a_list_of_objects_is_read_from_the_whole_history() -> None:
    record = b'\0\2\0[{"error":"first"},{"error":"last","worker":[{"a":1},{"a":2}]}]'
    assert AttemptHistory.unpack(record, last_only=True) == AttemptHistory.unpack(record)
    assert AttemptHistory.unpack(record).last_error == "last"


@given(some.binary(max_size=200))
def test_any_bytes_can_be_read(record: bytes) -> None:
    found = AttemptHistory.unpack(record)
    assert found.ended >= 0
    assert AttemptHistory.unpack(added(found, 1, error="e").pack()).last_error == "e"
