"""Job ids: in the order of creation, never twice, even after forks; their text can be read again."""

import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import pytest
import time_machine
from hypothesis import given
from hypothesis import strategies as some

from django_delayq.job.ids import from_text, next_id, shard_of, to_text

#: No verdict from how long an example took: the machine may be busy.


def test_ids_are_in_the_order_they_were_made() -> None:
    made = [next_id() for _ in range(10_000)]
    assert made == sorted(set(made))
    assert {len(one) for one in made} == {12}


def test_ids_keep_their_order_when_the_clock_is_set_back() -> None:
    now = time.time()
    with time_machine.travel(now + 3_600, tick=False):
        later = next_id()
    with time_machine.travel(now - 3_600, tick=False):
        assert next_id() > later


def test_an_id_begins_with_the_time() -> None:
    before = time.time_ns() // 1_000_000
    assert int.from_bytes(next_id()[:6]) >= before


def test_threads_never_make_the_same_id() -> None:
    made: list[bytes] = []
    threads = [threading.Thread(target=lambda: made.extend([next_id() for _ in range(5_000)])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 20_000


# In a separate process: Python warns of a fork of this one, which has threads.
FORKS = """
    import os, sys
    from django_delayq.job.ids import next_id

    mine = [next_id() for _ in range(10)]
    children = []
    for _ in range(8):
        read, write = os.pipe()
        if os.fork() == 0:
            with os.fdopen(write, "wb") as out:
                out.write(b"".join(next_id() for _ in range(1000)))
            os._exit(0)
        os.close(write)
        children.append(read)
    for child in children:
        with os.fdopen(child, "rb") as found:
            data = found.read()
        made = [data[at : at + 12] for at in range(0, len(data), 12)]
        assert made == sorted(made), "out of order"
        mine += made
    mine += [next_id() for _ in range(1000)]
    print(len(mine), len(set(mine)))
"""


def test_forked_children_never_make_the_same_id() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORKS)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["9010", "9010"], done.stderr


@given(some.binary(min_size=12, max_size=12), some.integers(min_value=0, max_value=9_999))
def test_the_text_of_an_id_can_be_read_again(raw: bytes, shard: int) -> None:
    text = to_text(raw, shard)
    assert from_text(text) == (raw, shard)
    assert len(text) < 64


HEX = "0123456789abcdef01234567"


@pytest.mark.parametrize(
    "text",
    [
        "",
        HEX,
        f"{HEX}-",
        f"{HEX}-01",
        f"{HEX}--1",
        f"{HEX}-10000",
        f"{HEX}-0 ",
        f"{HEX}-0\n",
        f" {HEX}-0",
        f"{HEX.upper()}-0",
        f"{HEX[:-1]}-0",
        f"{HEX}0-0",
        f"{HEX}-٣",
        f"{HEX}_0",
        "../../etc/passwd",
        "\0",
        f"{HEX}-0".encode(),
        None,
        7,
        b"",
        [],
    ],
)
def test_other_texts_are_no_ids(text: Any) -> None:
    assert from_text(text) is None


def test_a_shard_depends_on_the_routing_value_alone() -> None:
    assert {shard_of(bytes([number]), 1) for number in range(256)} == {0}
    assert {shard_of(bytes([number]), 4) for number in range(256)} == {0, 1, 2, 3}
    # Written down: the shard of a waiting key must not change with a release.
    assert [shard_of(b"a", 7), shard_of(b"b", 7), shard_of(bytes(16), 7)] == [
        0xE8B7BE43 % 7,
        0x71BEEFF9 % 7,
        0xECBB4B55 % 7,
    ]
