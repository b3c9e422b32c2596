"""Queue filter: the queues that a worker serves if its list has patterns or exclusions.

`run_worker --queues` and the reports of workers have it as text: names, patterns with `*`, and exclusions that begin
with `-`. `%2A`, `%2C`, `%25` and `%2D` stand for `*`, `,`, `%` and a first `-` of a name.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote_to_bytes

_BAD_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")
#: Stands for a `*` of a pattern that another pattern is compared with. It is no character of a real name.
_STAR = "\uffff"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueItem:
    """One item of the list: a name or a pattern, which may exclude."""

    #: As it was written.
    text: str
    excludes: bool
    #: What is between the `*`s, decoded. A name has one part.
    parts: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> Self:
        """Read one item. Raises ValueError for a bad escape, and for an exclusion of nothing."""
        if text == "-":
            raise ValueError("'-' excludes no queue; write -NAME, or %2D for a queue named '-'")
        excludes = text.startswith("-")
        return cls(
            text=text,
            excludes=excludes,
            parts=tuple(_decoded(part, text) for part in text[excludes:].split("*")),
        )

    @property
    def is_name(self) -> bool:
        """Whether it names one queue."""
        return len(self.parts) == 1

    def matches(self, queue: str) -> bool:
        """Return whether the queue has this name or matches this pattern. O(length), whatever the pattern."""
        # A regular expression with several `*` can take cubic time, and reports may hold any pattern.
        first, last = self.parts[0], self.parts[-1]
        if self.is_name:
            return queue == first
        start, end = len(first), len(queue) - len(last)
        if start > end or not (queue.startswith(first) and queue.endswith(last)):
            return False
        for part in self.parts[1:-1]:
            found = queue.find(part, start, end)
            if found < 0:
                return False
            start = found + len(part)
        return True

    def covers(self, other: "QueueItem") -> bool:
        """Return whether it matches each queue that the other item matches."""
        return self.matches(_STAR.join(other.parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFilter:
    """All queues that an item matches and no exclusion matches; without other items, all but the exclusions."""

    items: tuple[QueueItem, ...]

    @classmethod
    def read(cls, texts: Sequence[str]) -> Self:
        """Read the items. Raises ValueError for one that cannot be read, and if the exclusions leave no queue."""
        made = cls(items=tuple(map(QueueItem.read, texts)))
        included = made.included or [QueueItem.read("*")]
        if made.excluded and all(any(each.covers(item) for each in made.excluded) for item in included):
            raise ValueError(
                f"{', '.join(each.text for each in made.excluded)} excludes every queue of the list; "
                f"leave it out, or add a queue that it does not match"
            )
        return made

    @property
    def included(self) -> list[QueueItem]:
        """The items that do not exclude."""
        return [item for item in self.items if not item.excludes]

    @property
    def excluded(self) -> list[QueueItem]:
        """The items that exclude."""
        return [item for item in self.items if item.excludes]

    @property
    def texts(self) -> tuple[str, ...]:
        """The items as they were written."""
        return tuple(item.text for item in self.items)

    @property
    def is_needed(self) -> bool:
        """Whether an item is more than a name; otherwise a list of names is as good."""
        return any(item.excludes or not item.is_name for item in self.items)

    def matches(self, queue: str) -> bool:
        """Return whether a worker with this filter serves the queue."""
        included = self.included
        return not any(item.matches(queue) for item in self.excluded) and (
            not included or any(item.matches(queue) for item in included)
        )


def _decoded(part: str, text: str) -> str:
    if _BAD_ESCAPE.search(part):
        raise ValueError(f"{text!r:.80} has a % without two hexadecimal digits; write %25 for a percent sign")
    try:
        return unquote_to_bytes(part.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise ValueError(f"{text!r:.80} has a % that begins no UTF-8 character; write %25 for a percent sign") from None
