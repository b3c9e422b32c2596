"""Prelude: the Lua functions that several scripts share, as they are put in front of a script.

Lua creates every function of a script again at each call. So functions that a script does not name are left out, and
each part but the first is a table that creates its functions when the call first reads one of them. A usual exchange of
a worker meets no job with a tenant or a limit, and creates a third of its functions.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

FOLDER = files("django_delayq.store") / "lua"
#: The parts by name. Each uses the ones before it.
PARTS: Mapping[str, str] = {
    name: (FOLDER / f"{name}.lua").read_text(encoding="utf-8")
    for name in ("_prelude", "_extras", "_turns", "_limits", "_places", "_choice", "_candidates")
}
#: The metatable of the tables. The first read of a part that does not exist yet calls the function that creates it.
_LAZY = (
    "local LAZY = {__index = function(part, name) setmetatable(part, nil); part.create(part); return part[name] end}"
)
#: A comment, a string, or a name that is no field.
_TOKEN = re.compile(r"--.*|'[^'\n]*'|(?<![.\w])[A-Za-z_]\w*")
#: A function: its name, and its text up to the `end` in the first column.
_FUNCTION = re.compile(r"^(local function (\w+)\(.*?^end$)", re.MULTILINE | re.DOTALL)
#: A declaration of variables in the first column.
_VARIABLES = re.compile(r"^local (?!function )(\w+(?:, \w+)*)(?: = .*)?$", re.MULTILINE)


class _Piece(NamedTuple):
    """A function of a part, or the text between two of them."""

    #: The function's name; empty for other text.
    name: str
    #: The text. It reads functions of earlier parts from their tables.
    text: str
    #: The names in it.
    names: frozenset[str]


class Prelude:
    """The parts, ready to be put in front of scripts."""

    def __init__(self, parts: Mapping[str, str]) -> None:
        #: Name of a function -> the table that has it. Functions of the first part are in none.
        self._tables: dict[str, str] = {}
        self._parts: dict[str, list[_Piece]] = {}
        for table, text in parts.items():
            # Each function with its name in front, and the text before and behind it.
            texts = iter(_FUNCTION.split(text))
            pieces = [self._piece("", next(texts))]
            for function, name, behind in zip(texts, texts, texts, strict=True):
                pieces += [self._piece(name, function), self._piece("", behind)]
            if self._parts:
                self._tables |= {piece.name: table for piece in pieces if piece.name}
            self._parts[table] = pieces

    def in_front_of(self, source: str) -> str:
        """Return a script after the parts that it uses, without changing the number of their lines."""
        script = self._piece("", source)
        used = self._used_names(script)
        kept = {
            table: [piece if piece.name in used or not piece.name else _left_out(piece) for piece in pieces]
            for table, pieces in self._parts.items()
        }
        (_, first), *others = kept.items()
        texts = [_with_first_line(_text(first), _LAZY)]
        for number, (table, pieces) in enumerate(others, start=1):
            later = [piece for part in [*kept.values()][number + 1 :] for piece in part]
            texts.append(_created_later(table, pieces, frozenset().union(*(piece.names for piece in [*later, script]))))
        return "".join([*texts, script.text])

    def _piece(self, name: str, text: str) -> _Piece:
        names: set[str] = set()

        def read_from_table(token: re.Match[str]) -> str:
            word = token[0]
            if word[0] in "-'":
                return word
            names.add(word)
            return f"{self._tables[word]}.{word}" if word in self._tables else word

        return _Piece(name, _TOKEN.sub(read_from_table, text), frozenset(names))

    def _used_names(self, script: _Piece) -> set[str]:
        """Return the names in a script, and in the functions that it uses directly or through others."""
        functions = {piece.name: piece for pieces in self._parts.values() for piece in pieces if piece.name}
        used: set[str] = set()
        found = set(script.names)
        while found:
            used |= found
            found = set().union(*(functions[name].names for name in found & functions.keys())) - used
        return used


@cache
def prelude() -> Prelude:
    """Return the prelude of the package's scripts."""
    return Prelude(PARTS)


def _created_later(table: str, pieces: Sequence[_Piece], used: frozenset[str]) -> str:
    """Return a part as a table that creates its functions. Variables that later text uses are declared before it."""

    def take_out(found: re.Match[str]) -> str:
        if used.isdisjoint(found[1].split(", ")):
            return found[0]
        declared.append(found[0])
        return ""

    declared: list[str] = []
    text = _VARIABLES.sub(take_out, _text(pieces))
    functions = [piece.name for piece in pieces if piece.name in used and piece.text.strip()]
    if not functions:
        return " ".join(declared) + "\n" * text.count("\n")
    members = ", ".join(f"{table}.{name}" for name in functions)
    first = " ".join([*declared, f"local {table} = setmetatable({{create = function({table})"])
    text = _with_first_line(text, first).removesuffix("\n")
    return f"{text} {members} = {', '.join(functions)} end}}, LAZY)\n"


def _left_out(piece: _Piece) -> _Piece:
    return _Piece(piece.name, "\n" * piece.text.count("\n"), frozenset())


def _text(pieces: Sequence[_Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def _with_first_line(text: str, line: str) -> str:
    return f"{line}\n{text.partition(chr(10))[2]}"
