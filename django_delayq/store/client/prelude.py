"""Prelude: the Lua functions that several scripts share, as they are put in front of a script.

Lua creates every function of a script again at each call. So a script gets only the functions that it names. Parts
that most calls of a script do not use are lazy: such a part is a table that creates its functions when the call first
reads one of them.
"""

import re
from collections.abc import Mapping, Sequence, Set
from functools import cache
from importlib.resources import files
from typing import NamedTuple

FOLDER = files("django_delayq.store") / "lua"
#: The parts by name. Each uses the ones before it.
PARTS: Mapping[str, str] = {
    name: (FOLDER / f"{name}.lua").read_text(encoding="utf-8")
    for name in (
        "_prelude",
        "_layout",
        "_queues",
        "_schedules",
        "_extras",
        "_turns",
        "_limits",
        "_parking",
        "_places",
        "_dead_letters",
        "_choice",
        "_candidates",
    )
}
#: The metatable of the tables. The first read of a part that does not exist yet calls the function that creates it.
_LAZY = (
    "local LAZY = {__index = function(part, name) setmetatable(part, nil); part.create(part); return part[name] end}"
)
_COMMENT = re.compile(r" *--.*")
#: A string, or a name that is no field.
_TOKEN = re.compile(r"'[^'\n]*'|(?<![.\w])[A-Za-z_]\w*")
#: A function: its name, and its text up to the `end` in the first column.
_FUNCTION = re.compile(r"^(local function (\w+)\(.*?^end$)", re.MULTILINE | re.DOTALL)
#: A declaration of variables in the first column: their names, and their values.
_VARIABLES = re.compile(r"^local (?!function )(\w+(?:, \w+)*)(?: = (.*))?$", re.MULTILINE)


class _Piece(NamedTuple):
    """A function of a part, or the text between two of them."""

    #: The function's name; empty for other text.
    name: str
    text: str
    #: The names in a function, or in the values of variables between functions.
    names: Set[str]


class _Part(NamedTuple):
    """What one script gets of a part."""

    name: str
    text: str
    #: The names of its functions.
    functions: Sequence[str]
    #: The names that it uses.
    names: Set[str]


class Prelude:
    """The parts, ready to be put in front of scripts."""

    def __init__(self, parts: Mapping[str, str]) -> None:
        self._parts: dict[str, list[_Piece]] = {}
        self._functions: dict[str, _Piece] = {}
        for part, text in parts.items():
            # Each function with its name in front, and the text before and behind it.
            texts = iter(_FUNCTION.split(_without_comments(text)))
            pieces = [_between_functions(next(texts))]
            for function, name, behind in zip(texts, texts, texts, strict=True):
                self._functions[name] = _Piece(name, function, _names_in(function))
                pieces += [self._functions[name], _between_functions(behind)]
            self._parts[part] = pieces

    def in_front_of(
        self, source: str, *, lazy: Set[str] = frozenset(), replacements: Mapping[str, str] | None = None
    ) -> str:
        """Return a script after what it uses of the parts, without comments, with other text in place of some names.

        Each line keeps its number. `lazy` has the names of the lazy parts; no other part is between them.
        """
        source = _without_comments(source)
        names = _names_in(source)
        functions = self._used_functions(names)
        parts: list[_Part] = []
        for name, pieces in reversed(self._parts.items()):
            parts.insert(0, _used_part(name, pieces, functions, names))
            names |= parts[0].names
        of_names = dict(replacements or {})
        first = next((number for number, part in enumerate(parts) if part.name in lazy), len(parts))
        group, after = parts[first : first + len(lazy)], parts[first + len(lazy) :]
        texts = [_replaced(part.text, of_names) for part in parts[:first]]
        if group:
            texts.insert(0, f"{_LAZY} ")
            later = set().union(_names_in(source), *(part.names for part in after))
            texts.append(_created_later(group, later, of_names))
            of_names |= {name: f"_lazy.{part.name}.{name}" for part in group for name in part.functions}
        return "".join([*texts, *(_replaced(text, of_names) for text in (*(part.text for part in after), source))])

    def _used_functions(self, names: Set[str]) -> Set[str]:
        """Return the names of the functions that a script with these names uses, directly or through others."""
        used: set[str] = set()
        found = names & self._functions.keys()
        while found:
            used |= found
            found = set().union(*(self._functions[name].names for name in found)) & self._functions.keys() - used
        return used


@cache
def prelude() -> Prelude:
    """Return the prelude of the package's scripts."""
    return Prelude(PARTS)


def _between_functions(text: str) -> _Piece:
    return _Piece("", text, set().union(*(_names_in(found[2] or "") for found in _VARIABLES.finditer(text))))


def _used_part(part: str, pieces: Sequence[_Piece], functions: Set[str], later: Set[str]) -> _Part:
    """Return a part without the functions and the variables that neither it nor later text uses."""
    kept = [piece if piece.name in functions or not piece.name else _left_out(piece) for piece in pieces]
    names = set().union(*(piece.names for piece in kept))
    text, _ = _without_variables("".join(piece.text for piece in kept), names | later, used=False)
    return _Part(part, text, [piece.name for piece in kept if piece.name in functions], names)


def _left_out(piece: _Piece) -> _Piece:
    return _Piece(piece.name, "\n" * piece.text.count("\n"), frozenset())


def _created_later(group: Sequence[_Part], later: Set[str], replacements: Mapping[str, str]) -> str:
    """Return lazy parts as one table of tables that create their functions. `later` has the names in later text."""
    texts, variables, of_names = [], [], dict(replacements)
    for number, part in enumerate(group, start=1):
        in_group = set().union(*(each.names for each in group[number:]))
        text, outside = _without_variables(part.text, later, used=True)
        text, inside = _without_variables(text, in_group, used=True)
        texts.append(_table(part.name, _replaced(text, of_names), part.functions, inside))
        variables += outside
        of_names |= {name: f"{part.name}.{name}" for name in part.functions}
    # One table outside: each costs every call, used or not.
    return _table("_lazy", "".join(texts), [part.name for part in group if part.functions], variables)


def _table(name: str, text: str, members: Sequence[str], variables: Sequence[str]) -> str:
    """Return a text as a table that creates its members at the first read, after variables that other text uses."""
    if not members:
        return " ".join(variables) + "\n" * text.count("\n")
    first = " ".join([*variables, f"local {name} = setmetatable({{create = function({name})"])
    names = ", ".join(f"{name}.{member}" for member in members)
    return f"{first} {text.removesuffix(chr(10))} {names} = {', '.join(members)} end}}, LAZY)\n"


def _without_comments(text: str) -> str:
    return _COMMENT.sub("", text)


def _without_variables(text: str, names: Set[str], *, used: bool) -> tuple[str, list[str]]:
    """Return a text without the declarations of variables that are, or are not, among the names; and these."""
    left_out = []

    def leave_out(found: re.Match[str]) -> str:
        if names.isdisjoint(found[1].split(", ")) is used:
            return found[0]
        left_out.append(found[0])
        return ""

    return _VARIABLES.sub(leave_out, text), left_out


def _names_in(text: str) -> Set[str]:
    """Return the names in a text that are no fields."""
    return {token for token in _TOKEN.findall(text) if token[0] != "'"}


def _replaced(text: str, replacements: Mapping[str, str]) -> str:
    """Return a text with other text in place of some names."""
    return _TOKEN.sub(lambda token: replacements.get(token[0], token[0]), text)
