"""Mutation: a wrong version of the package, as exact replacements in its files."""

from dataclasses import dataclass

#: Files of the package in which many bugs are planted.
EXCHANGE, PROMOTE, RECLAIM = "store/lua/settle_and_claim.lua", "store/lua/promote.lua", "store/lua/reclaim.lua"
CANDIDATES, PARKING = "store/lua/_candidates.lua", "store/lua/_parking.lua"
QUEUES = "store/lua/_queues.lua"
ENQUEUE, REQUEUE, PRELUDE = "store/lua/enqueue.lua", "store/lua/requeue.lua", "store/lua/_prelude.lua"
EXTRAS, PLACES, DEAD_LETTERS = (f"store/lua/_{part}.lua" for part in ("extras", "places", "dead_letters"))
SPREAD, REPLACE = "store/lua/take_places.lua", "store/lua/replace.lua"


@dataclass(frozen=True)
class Mutation:
    """One bug: its effect, and (file, text that occurs once there, its replacement) for each place."""

    name: str
    edits: tuple[tuple[str, str, str], ...]

    @classmethod
    def at(cls, name: str, file: str, text: str, replacement: str = "") -> "Mutation":
        """Return a bug that is a single edit."""
        return cls(name, ((file, text, replacement),))
