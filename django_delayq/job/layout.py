"""Layout: over how many shards the jobs are spread, and over how many they were before. No I/O.

Each shard stores the layout. Its number only grows, so that of two layouts the later one is known. While jobs of an
older number of shards are left, the layout names that number too: what belongs together stays in its old shard until
nothing of it is there any more.
"""

import re
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from django_delayq.job.ids import shard_of

#: What the first layout of a project has, as releases without later ones stored it: the number of shards alone.
_FIRST = re.compile(r"[1-9][0-9]{0,3}")
_TEXT = re.compile(r"(?P<number>[0-9]{1,15}) (?P<chain>[0-9]+(?:@[0-9]+)?(?:,[0-9]+(?:@[0-9]+)?)*)(?P<more>(?: \S+)*)")


class ShardCount(NamedTuple):
    """A number of shards, and the number of the layout that had it first."""

    shards: int
    since: int = 0


class Place(NamedTuple):
    """A shard that may have what belongs to a routing value."""

    shard: int
    #: The number of the layout since which new things belong elsewhere; 0: they belong here.
    left_since: int = 0

    @property
    def is_home(self) -> bool:
        """Whether new things of the value belong here."""
        return self.left_since == 0

    def left_here(self, routing: bytes) -> bytes:
        """Return what scripts take for a thing that the shard stores only while its routing value lingers there."""
        return b"" if self.is_home else self.left_since.to_bytes(8) + routing


@dataclass(frozen=True, slots=True)
class Layout:
    """One layout. `text` is what shards store."""

    number: int
    #: The numbers of shards, the oldest first. Something may be left of each but the last, which is for new jobs.
    chain: tuple[ShardCount, ...]
    #: How many shards there will be: processes serve them, but they get no jobs yet. 0: no more than now.
    coming: int = 0
    #: Former numbers that a command changed: a process with such a SHARDS was started before, and follows the layout.
    past: frozenset[int] = frozenset()
    #: Recurring schedules are being moved to their new shards.
    moves_schedules: bool = False
    # Not properties: each enqueue reads them.
    #: The number of shards over which new jobs are spread.
    shards: int = field(init=False, repr=False, compare=False)
    #: The number of shards that processes serve.
    served: int = field(init=False, repr=False, compare=False)
    #: Nothing is left of an older number of shards.
    is_finished: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        numbers = [each.shards for each in self.chain]
        for name, value in (
            ("shards", numbers[-1]),
            ("served", max(self.coming, *numbers)),
            ("is_finished", len(numbers) == 1),
        ):
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, shards: int, *, number: int = 0) -> Self:
        """Return the layout of a number of shards, of which nothing else is known."""
        return cls(number, (ShardCount(shards),))

    @classmethod
    def read(cls, stored: bytes | str | None) -> Self | None:
        """Read a stored text; None if there is none, or if it was edited manually."""
        text = stored.decode(errors="replace") if isinstance(stored, bytes) else stored or ""
        if _FIRST.fullmatch(text):
            return cls.of(int(text), number=1)
        found = _TEXT.fullmatch(text)
        if found is None:
            return None
        chain = tuple(ShardCount(*map(int, each.split("@"))) for each in found["chain"].split(","))
        words = dict.fromkeys(found["more"].split(), "")
        options = {name: value for name, _, value in (word.partition("=") for word in words)}
        try:
            past = frozenset(int(each) for each in options.get("past", "").split(",") if each)
            coming = int(options.get("coming", 0))
        except ValueError:
            return None
        if not all(0 < each.shards <= 9_999 for each in chain) or coming > 9_999:
            return None
        return cls(int(found["number"]), chain, coming, past, "moves" in options)

    @property
    def text(self) -> str:
        """The stored form. Layout 1 is stored as releases without later ones do."""
        if self == Layout.of(self.shards, number=1):
            return str(self.shards)
        chain = ",".join(f"{each.shards}@{each.since}" if each.since else str(each.shards) for each in self.chain)
        more = [f"coming={self.coming}"] if self.coming else []
        more += [f"past={','.join(map(str, sorted(self.past)))}"] if self.past else []
        return " ".join([str(self.number), chain, *more, *(["moves"] if self.moves_schedules else [])])

    @property
    def older(self) -> list[int]:
        """The older numbers of shards of which something may be left, the oldest first."""
        return [each.shards for each in self.chain[:-1]]

    @property
    def draining(self) -> range:
        """The shards that get no new jobs any more, and are dropped once they are empty."""
        return range(self.shards, max(each.shards for each in self.chain))

    @property
    def has_changed(self) -> bool:
        """Whether the number of shards was another one, so that a job may be in another shard than its id says."""
        return bool(self.past) or not self.is_finished

    def home(self, routing: bytes) -> int:
        """Return the shard in which new things of a routing value belong."""
        return shard_of(routing, self.shards)

    def places(self, routing: bytes) -> list[Place]:
        """Return the shards that may have something of a value, in the order to ask them. Its home is last.

        The home may also be one of the others: the value is still there, or comes back there later.
        """
        found = list[Place]()
        for at, each in enumerate(self.chain, start=1):
            shard = shard_of(routing, each.shards)
            if found and found[-1].shard == shard:
                found.pop()
            found.append(Place(shard, self.chain[at].since if at < len(self.chain) else 0))
        return found

    def announcing(self, shards: int) -> Self:
        """Return the next layout, in which processes serve shards that get no jobs yet; 0: none are coming."""
        return replace(self, number=self.number + 1, coming=shards)

    def spread_over(self, shards: int) -> Self:
        """Return the next layout, with another number of shards for what is new."""
        number = self.number + 1
        return replace(
            self,
            number=number,
            chain=(*self.chain, ShardCount(shards, number)),
            coming=0,
            past=(self.past | {self.shards}) - {shards},
            moves_schedules=True,
        )

    def with_schedules_moved(self) -> Self:
        """Return the next layout, in which all recurring schedules are in their shards."""
        return replace(self, number=self.number + 1, moves_schedules=False)

    def finished(self) -> Self:
        """Return the next layout, in which nothing is left of older numbers of shards."""
        return replace(self, number=self.number + 1, chain=self.chain[-1:])
