"""Pauses as this release stores them, read by the older one: it shows their ends and tenants as part of the name."""

from collections.abc import Callable

READ_PAUSE = """
import sys
from django_delayq.store.queries.snapshot import Pause
pause = Pause.read(sys.stdin.buffer.read())
print(pause.at_us, ascii(pause.by))
"""


def test_the_older_reader_shows_the_name_and_the_moment(in_older_package: Callable[[str, bytes], str]) -> None:
    read = in_older_package(READ_PAUSE, b"1700000000000000 ann\xff1700000060000000")
    assert read.strip() == "1700000000000000 'ann\\ufffd1700000060000000'"


def test_the_older_reader_shows_the_name_of_a_paused_tenant_behind_the_persons(
    in_older_package: Callable[[str, bytes], str],
) -> None:
    read = in_older_package(READ_PAUSE, b"1700000000000000 ann\xff acme")
    assert read.strip() == "1700000000000000 'ann\\ufffd acme'"
