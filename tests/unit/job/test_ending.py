"""Endings: the buffer of a process, and the bytes that Redis stores of them."""

import os
import threading
from zlib import compress

import pytest

from django_delayq.job.ending import ENDED, Ending, EndingBuffer, EndingRow
from django_delayq.job.job import State
from django_delayq.job.security.encryption import Cipher
from django_delayq.job.security.endings_record import pack_endings, read_endings

CODE, PLAIN = b"8 bytes.", Cipher(on=False)
KEYS = Cipher(on=True, secrets=["k" * 32])
NOW = 1_700_000_000_000_000


def row(number: int = 1, *, task: str = "shop.remind", state: str = "done", run_us: int | None = 5_000) -> EndingRow:
    """Return the row of one ending."""
    lag_us = None if run_us is None else -20
    return number.to_bytes(12) + b"more", task, "mail", number, state, NOW + number, lag_us, run_us, number % 2, ""


def packed(*rows: EndingRow, cipher: Cipher = PLAIN, most_bytes: int = 100_000) -> bytes:
    """Return the chunk of some rows."""
    return pack_endings(rows, code=CODE, name="host:1", cipher=cipher, most_bytes=most_bytes)[0]


@pytest.mark.parametrize("cipher", [PLAIN, KEYS], ids=["plain", "encrypted"])
@pytest.mark.parametrize("number", [1, 500])
def test_a_chunk_is_read_as_it_was_packed(number: int, cipher: Cipher) -> None:
    rows = [row(each, state=ENDED[each % 5]) for each in range(number)]
    found = read_endings(packed(*rows, cipher=cipher), shard=3, cipher=cipher)
    assert [
        (each.raw_id, each.task, each.queue, each.attempt, each.state, each.ended_us, each.lag_us, each.run_us)
        for each in found
    ] == [(each[0][:12], *each[1:3], each[3] + 1, each[4], each[5] - 20 + 5_000, *each[6:8]) for each in rows]
    assert [each.has_result for each in found] == [each[8] > 0 for each in rows]
    assert {(each.shard, each.worker) for each in found} == {(3, "host:1")}
    assert (found[0].id, found[0].started_us) == (f"{0:024x}-3", NOW - 20)


def test_a_job_that_did_not_run_has_no_times() -> None:
    [found] = read_endings(packed(row(state="expired", run_us=None)), shard=0, cipher=PLAIN)
    assert (found.state, found.lag_us, found.run_us, found.started_us) == (State.EXPIRED, None, None, None)
    assert found.ended_us == NOW + 1


def test_a_row_may_name_the_worker_that_ran_the_job() -> None:
    [found] = read_endings(packed((*row()[:9], "other:2")), shard=0, cipher=PLAIN)
    assert found.worker == "other:2"


@pytest.mark.parametrize("name", ["", "é\0\n", "\ud800", "x" * 2_000])
def test_a_name_may_be_any_text(name: str) -> None:
    [found] = read_endings(packed(row(task=name)), shard=0, cipher=PLAIN)
    assert found.task == name


def test_names_are_unreadable_with_encryption_and_without_the_key() -> None:
    chunk = packed(row(), cipher=KEYS)
    assert b"shop" in packed(row()) and b"shop" not in chunk
    assert read_endings(chunk, shard=0, cipher=Cipher(on=True, secrets=["l" * 32])) == []


def test_the_newest_endings_are_packed_if_all_are_too_large() -> None:
    rows = [row(number, task=os.urandom(150).hex()) for number in range(100)]
    chunk, number = pack_endings(rows, code=CODE, name="host:1", cipher=KEYS, most_bytes=2_000)
    assert 0 < number < 100 and len(chunk) <= 2_000
    assert [each.attempt for each in read_endings(chunk, shard=0, cipher=KEYS)] == [*range(101 - number, 101)]
    assert pack_endings(rows, code=CODE, name="host:1", cipher=KEYS, most_bytes=10) == (b"", 0)


def test_a_time_that_is_too_large_is_left_out() -> None:
    chunk = packed((*row()[:5], 10**400, None, None, 0, ""), row(2))
    assert [each.attempt for each in read_endings(chunk, shard=0, cipher=PLAIN)] == [3]


@pytest.mark.parametrize(
    "foreign",
    [
        b"",
        b"x",
        b"\xff" * 70,
        CODE,
        CODE + b"\x01" * 60,
        CODE + b'["a"]',
        CODE + b"[]\n" + bytes(55),
        CODE + b"[]\n" + bytes(5),
        CODE + b"[5]\n" + bytes(55),
        CODE + b'["a"]\n' + bytes(23) + b"\xff" * 32,
        CODE + b"[" * 100_000,
        CODE + compress(b'["a"' + bytes(40_000_000)),
        CODE + compress(b"{}\n" + bytes(55)),
    ],
    ids=lambda chunk: f"{len(chunk)} bytes",
)
def test_a_foreign_chunk_is_no_ending(foreign: bytes) -> None:
    assert read_endings(foreign, shard=0, cipher=PLAIN) == []
    assert read_endings(foreign, shard=0, cipher=KEYS) == []


def test_any_damage_is_read_without_an_error() -> None:
    for cipher in (PLAIN, KEYS):
        chunk = packed(*map(row, range(30)), cipher=cipher)
        for at in range(len(chunk)):
            damaged = chunk[:at] + bytes((chunk[at] ^ 0x55,)) + chunk[at + 1 :]
            for each in (damaged, chunk[:at]):
                assert all(type(found) is Ending for found in read_endings(each, shard=0, cipher=cipher))


def test_a_buffer_keeps_the_newest() -> None:
    buffer = EndingBuffer(3)
    for number in range(5):
        buffer.add(row(number))
    taken = buffer.take()
    assert [each[3] for each in taken] == [2, 3, 4]
    assert buffer.take() == []
    buffer.restore(taken)
    buffer.add(row(5))
    assert [each[3] for each in buffer.take()] == [3, 4, 5]


def test_a_buffer_of_none_is_off() -> None:
    buffer = EndingBuffer(0)
    buffer.add(row())
    assert not buffer.is_on and buffer.take() == []


def test_endings_are_taken_while_others_are_added() -> None:
    buffer, taken = EndingBuffer(1_000_000), list[EndingRow]()

    def add() -> None:
        for number in range(30_000):
            buffer.add(row(number))

    threads = [threading.Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        taken += buffer.take()
    assert len([*taken, *buffer.take()]) == 60_000
