"""Attempts record: encrypted behind its head, and no process loses what another one sealed."""

from dataclasses import replace

import pytest

from django_delayq.job.attempts import HISTORY, MOST_SEALED, NO_ATTEMPTS, AttemptHistory
from django_delayq.job.security.attempts_record import pack_attempts, read_attempts
from django_delayq.job.security.encryption import Cipher

RAW_ID = bytes(range(12))
FIRST, SECOND = (Cipher(on=True, secrets=[letter * 32]) for letter in "ab")
BOTH = Cipher(on=True, secrets=["b" * 32, "a" * 32])
OFF = Cipher(on=False, secrets=["c" * 32])
FAILED = AttemptHistory(
    ended=2, crash_suspected=True, snoozes=3, interruptions=4, history=({"error": "canary 1"}, {"error": "canary 2"})
)


def read(record: bytes | None, cipher: Cipher) -> AttemptHistory:
    return read_attempts(record, raw_id=RAW_ID, cipher=cipher)


def pack(attempts: AttemptHistory, cipher: Cipher) -> bytes:
    return pack_attempts(attempts, raw_id=RAW_ID, cipher=cipher)


def test_the_number_of_attempts_stays_readable() -> None:
    record = pack(FAILED, FIRST)
    assert b"canary" not in record and record[:3] == FAILED.pack()[:3]
    assert read(record, FIRST) == FAILED
    found = read(record, SECOND)
    assert (found.ended, found.crash_suspected, found.history, found.snoozes) == (2, True, (), 0)
    # Without a history there is nothing to hide, and a record of three bytes stays one.
    assert pack(AttemptHistory(ended=2), FIRST) == b"\0\2\0"


def test_without_encryption_the_record_stays_plain() -> None:
    assert pack(FAILED, OFF) == FAILED.pack()
    assert read(FAILED.pack(), OFF) == read(FAILED.pack(), FIRST) == FAILED
    assert read(None, OFF) is NO_ATTEMPTS


@pytest.mark.parametrize("without", [SECOND, OFF], ids=["another key", "off"])
def test_a_wait_without_the_key_loses_nothing(without: Cipher) -> None:
    record = pack(FAILED, FIRST)
    for moment in range(5, 50):
        record = pack(read(record, without).waited("unknown encryption key", now_us=moment), without)
    found = read(record, FIRST)
    assert (found.waiting_since_us, found.waiting_for) == (5, "unknown encryption key")
    assert replace(found, waiting_since_us=0, waiting_for="") == FAILED
    assert b"canary" not in record


def test_processes_with_different_keys_each_keep_the_parts_of_the_others() -> None:
    record = pack(FAILED, FIRST)
    sizes = set()
    for _ in range(30):
        for cipher in (SECOND, FIRST, OFF):
            record = pack(read(record, cipher).snoozed(), cipher)
        sizes.add(len(record) // 100)
    assert b"canary" not in record and len(sizes) == 1
    found = read(record, BOTH)
    assert (found.ended, found.snoozes, found.interruptions) == (2, 93, 4)
    assert sorted(entry["error"] for entry in found.history) == ["canary 1", "canary 2"]
    assert found.sealed == ()


def test_new_errors_stand_behind_those_that_were_sealed() -> None:
    entry = {"worker": "w", "started_us": 1, "ended_us": 2, "ending": "failed"}
    record = pack(read(pack(FAILED, FIRST), SECOND).add(**entry, error="canary 3"), SECOND)
    assert b"canary" not in record and record[:3] == b"\0\3\0"
    assert [each["error"] for each in read(record, SECOND).history] == ["canary 3"]
    assert [each["error"] for each in read(record, BOTH).history] == ["canary 1", "canary 2", "canary 3"]
    many = AttemptHistory(ended=HISTORY, history=tuple({"error": str(number)} for number in range(HISTORY)))
    record = pack(read(pack(many, FIRST), SECOND).add(**entry, error="last"), SECOND)
    assert [each["error"] for each in read(record, BOTH).history] == [*map(str, range(1, HISTORY)), "last"]


def test_sealed_parts_are_bounded() -> None:
    parts = tuple(b"\1" + bytes([letter]) * (MOST_SEALED // 3) for letter in b"abc")
    assert read(replace(FAILED, sealed=parts).pack(), OFF).sealed == parts[1:]
    assert read(replace(FAILED, sealed=(bytes(MOST_SEALED + 1),)).pack(), OFF) == FAILED


def test_a_part_that_nobody_can_read_is_dropped() -> None:
    record = pack(FAILED, FIRST)
    assert read(record[:-1] + bytes([record[-1] ^ 1]), FIRST) == AttemptHistory(ended=2, crash_suspected=True)
    kept = pack(read(record, OFF), OFF)
    assert read(kept.replace(b'"sealed":["', b'"sealed":["='), FIRST) == AttemptHistory(ended=2, crash_suspected=True)


@pytest.mark.parametrize("sealed", [b"7", b"null", b'"text"', b"[7]", b'["?"]', b'["\xc3\xa9"]', b"{}", b"true"])
def test_damaged_parts_read_as_none(sealed: bytes) -> None:
    assert read(b'\0\7\0{"snoozes":2,"sealed":' + sealed + b"}", OFF) == AttemptHistory(ended=7, snoozes=2)
