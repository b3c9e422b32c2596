"""Reading: the steps of a query of one shard, without the sending.

One reading may run alone, or with those of other shards at the same time: then all steps of one server are one write.
"""

from collections.abc import Callable, Generator, Sequence
from itertools import islice
from typing import Any, TypeAlias, TypeVar

from django_delayq.store.client.script_call import ScriptCall

T = TypeVar("T")

#: A call that only reads, or a packed command that does.
ReadCall: TypeAlias = ScriptCall | bytes
#: Yields the calls of one step, is sent their replies, and returns what it read. One round trip a step.
Reading: TypeAlias = Generator[Sequence[ReadCall], list[Any], T]


def packed(call: ReadCall) -> bytes:
    """Return the bytes to send."""
    return call if isinstance(call, bytes) else call.packed


def run_alone(reading: Reading[T], read_all: Callable[[Sequence[ReadCall]], list[Any]]) -> T:
    """Run a reading; `read_all` returns the replies of one step."""
    try:
        calls = next(reading)
        while True:
            calls = reading.send(read_all(calls))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def together(readings: Sequence[Reading[T]]) -> Reading[list[T]]:
    """Return a reading that runs several side by side: each of its steps has one of each that has not ended."""
    values: dict[int, T] = {}
    # The first `None` starts a reading.
    replies: dict[int, Any] = dict.fromkeys(range(len(readings)))
    while len(values) < len(readings):
        calls: dict[int, Sequence[ReadCall]] = {}
        for at, its_replies in replies.items():
            try:
                calls[at] = readings[at].send(its_replies)
            except StopIteration as end:
                values[at] = end.value
        if calls:
            found = iter((yield [call for its_calls in calls.values() for call in its_calls]))
            replies = {at: list(islice(found, len(its_calls))) for at, its_calls in calls.items()}
    return [values[at] for at in range(len(readings))]
