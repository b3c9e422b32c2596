"""Script: one Lua file of `store/lua`.

The header of a script names its keys: first those that every call has, after a semicolon those that depend on the call.
"""

import re
from functools import cached_property
from hashlib import sha1

from django_delayq.store.client.prelude import FOLDER, PARTS, prelude

_HEADER = re.compile(r"^-- KEYS: (?P<names>\w+(?:,(?: |\n--   )\w+)*)[;.]", re.MULTILINE)
_WAITS = "\n-- Replicas: a producer's call waits for those of WAIT_REPLICAS.\n"
_LAZY = re.compile(r"^-- Lazy: (?P<parts>\w+(?:, \w+)*)\.", re.MULTILINE)
#: Keys of the queue of the call. Shared functions have parameters of these names, for the keys of any queue.
_OF_QUEUE = frozenset({"scheduled", "ready", "recovered", "parked", "queue_notify"})
_LINE = re.compile(r"(user_script|@user_script): ?(\d+)")
#: The number of lines of each part.
_LINES = {name: text.count("\n") for name, text in PARTS.items()}


class Script:
    """One Lua file with the part of the prelude that it uses, and the names of its keys."""

    def __init__(self, name: str) -> None:
        self._source = (FOLDER / f"{name}.lua").read_text(encoding="utf-8")
        header = _HEADER.search(self._source)
        if header is None:
            raise ValueError(f"the header of {name}.lua does not name its keys")
        self.name = name
        #: A producer's call is not over before the replicas of WAIT_REPLICAS have what it wrote.
        self.waits_for_replicas = _WAITS in self._source
        #: Names of the keys that every call has, in order.
        self.key_names: tuple[str, ...] = tuple(re.findall(r"\w+", header["names"]))

    @cached_property
    def text(self) -> str:
        """The text that Redis runs. Made at its first use, because a process uses few of the scripts."""
        lazy = _LAZY.search(self._source)
        keys = {name: f"KEYS[{number}]" for number, name in enumerate(self.key_names, start=1)}
        # As variables only those whose names are parameters of shared functions: a function that uses a variable from
        # outside costs a search in a list of them at every call. FIXED is the number of keys that every call has; those
        # of the call follow.
        variables = {"FIXED": str(len(keys))} | {name: keys[name] for name in self.key_names if name in _OF_QUEUE}
        keys = {name: key for name, key in keys.items() if name not in variables}
        body = prelude().in_front_of(
            self._source, lazy=frozenset(lazy["parts"].split(", ") if lazy else ()), replacements=keys
        )
        return f"local {', '.join(variables)} = {', '.join(variables.values())}\n{body}"

    @cached_property
    def sha(self) -> str:
        """The digest by which Redis knows the text."""
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def source_line(self, message: str) -> str:
        """Return `name.lua:line` for the text of a script error."""
        match = _LINE.search(message)
        if match is None:
            return f"{self.name}.lua"
        # The names of the keys are the first line.
        line = int(match[2]) - 1
        for name, lines in _LINES.items():
            if line <= lines:
                return f"{name}.lua:{line}"
            line -= lines
        return f"{self.name}.lua:{line}"
