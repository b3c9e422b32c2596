"""Outages: how commands meet a Redis that cannot serve them, and how they come back; read in what they say."""

import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.subprocesses import Command, Processes

#: Seconds a state lasts once everybody has met it: several tries of everybody.
LASTS = 0.7
_SAID = re.compile(
    r"WARNING (?P<who>Worker|Dispatcher|Heartbeats) of .* (?:waits for Redis|lost the connection|cannot listen)"
)


def warnings(commands: Sequence[Command]) -> Counter[str]:
    """Count the warnings that a state is met, per service."""
    return Counter(found["who"] for command in commands for found in _SAID.finditer(command.output))


def resumed(commands: Sequence[Command]) -> Counter[str]:
    """Count how often each service said that it works again."""
    found = re.compile(r"INFO (Worker|Dispatcher|Heartbeats) of .* works again")
    return Counter(match[1] for command in commands for match in found.finditer(command.output))


@contextmanager
def met(processes: Processes, commands: Sequence[Command]) -> Iterator[None]:
    """Inside, all meet a state: each says so once, however long it lasts, and then that it works again."""
    said, back = warnings(commands), resumed(commands)
    yield
    processes.until(
        lambda: (resumed(commands) - back).keys() >= {"Worker", "Dispatcher"},
        what="all to work again",
    )
    told = warnings(commands) - said
    # An answer to a blocking pop that was still on its way when the state ended may be told as well.
    assert max(told.values()) <= 2, told
    assert all(command.running for command in commands)
    assert "Traceback" not in "".join(command.output for command in commands)


def lasts(processes: Processes, commands: Sequence[Command], *, since: Counter[str]) -> None:
    """Wait until worker and dispatcher have met the state, and then for as long as it lasts."""
    processes.until(lambda: len((warnings(commands) - since).keys() - {"Heartbeats"}) == 2, what="all to meet it")
    threading.Event().wait(LASTS)
