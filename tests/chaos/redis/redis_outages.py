"""Outages of Redis: what processes log when Redis cannot serve them, and when it can again."""

import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.subprocesses import Command, Processes

#: Seconds an outage lasts after every process has noticed it. Each process retries several times in that time.
DURATION = 0.7
_WARNING = re.compile(
    r"WARNING (?P<who>Worker|Dispatcher|Heartbeats) of .* (?:waits for Redis|lost the connection|cannot listen)"
)


def warnings(commands: Sequence[Command]) -> Counter[str]:
    """Count the warnings about an outage, by service."""
    return Counter(found["who"] for command in commands for found in _WARNING.finditer(command.output))


def resumed(commands: Sequence[Command]) -> Counter[str]:
    """Count how often each service logged that it works again."""
    found = re.compile(r"INFO (Worker|Dispatcher|Heartbeats) of .* works again")
    return Counter(match[1] for command in commands for match in found.finditer(command.output))


@contextmanager
def logged_once(processes: Processes, commands: Sequence[Command]) -> Iterator[None]:
    """Check that each process logs the outage inside the block once, however long it lasts, and logs its recovery.

    On a slow machine a server may be away several times.
    """
    warned, recovered = warnings(commands), resumed(commands)
    yield
    processes.until(
        lambda: (resumed(commands) - recovered).keys() >= {"Worker", "Dispatcher"},
        what="all to work again",
    )
    new, outages = warnings(commands) - warned, resumed(commands) - recovered
    # A pending reply to a blocking pop can fail after the outage and cause a second warning.
    assert all(number <= max(2, 1 + outages[who]) for who, number in new.items()), (new, outages)
    assert all(command.running for command in commands)
    assert not any(command.failures for command in commands)


def wait_out(processes: Processes, commands: Sequence[Command], *, since: Counter[str]) -> None:
    """Wait until worker and dispatcher have logged the outage, and then for the time that it lasts."""
    processes.until(
        lambda: len((warnings(commands) - since).keys() - {"Heartbeats"}) == 2, what="all to log the outage"
    )
    threading.Event().wait(DURATION)
