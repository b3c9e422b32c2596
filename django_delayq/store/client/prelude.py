"""Prelude: the Lua functions that several scripts share, as they are put in front of a script.

Lua creates every function of a script again at each call. So functions that a script does not name are left out, and
each part but the first is a table that creates its functions when the call first reads one of them. A usual exchange of
a worker meets no job with a tenant or a limit, and creates a third of its functions.
"""

import re
from collections.abc import Mapping
from importlib.resources import files

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
_WORD = re.compile(r"\w+")
_COMMENT, _COMMENT_OR_STRING = re.compile(r"--.*"), re.compile(r"(--.*|'[^'\n]*')")
#: A function: its name, and its text up to the `end` in the first column.
_FUNCTION = re.compile(r"^local function (\w+)\(.*?^end$", re.MULTILINE | re.DOTALL)
#: A declaration of variables in the first column.
_VARIABLES = re.compile(r"^local (?!function )(\w+(?:, \w+)*)(?: = .*)?$", re.MULTILINE)


def with_prelude(source: str, parts: Mapping[str, str] = PARTS) -> str:
    """Return a script after the parts that it uses, without changing the number of their lines."""
    names, texts = list(parts), [*_without_unused_functions(source, list(parts.values())), source]
    texts[0] = _replace_first_line(texts[0], _LAZY)
    for number, name in enumerate(names[1:], start=1):
        later = texts[number + 1 :]
        used = set().union(*map(_words, later))
        functions = [function for function in _FUNCTION.findall(texts[number]) if function in used]
        texts[number] = _created_later(texts[number], name, functions, used)
        texts[number + 1 :] = [_read_from(name, functions, text) for text in later]
    return "".join(texts)


def _without_unused_functions(source: str, parts: list[str]) -> list[str]:
    """Return the parts without the functions that a script does not use, directly or through others."""
    functions = {found[1]: found[0] for part in parts for found in _FUNCTION.finditer(part)}
    used: set[str] = set()
    texts = [source]
    while texts:
        names = functions.keys() & _words(texts.pop())
        texts += [functions[name] for name in names - used]
        used |= names
    return [_FUNCTION.sub(lambda found: found[0] if found[1] in used else _empty(found[0]), part) for part in parts]


def _created_later(part: str, table: str, functions: list[str], used: set[str]) -> str:
    """Return a part as a table that creates these functions. Variables that later text uses are declared before it."""

    def take_out(found: re.Match[str]) -> str:
        if used.isdisjoint(_WORD.findall(found[1])):
            return found[0]
        declared.append(found[0])
        return ""

    declared: list[str] = []
    part = _VARIABLES.sub(take_out, part)
    if not functions:
        return " ".join(declared) + _empty(part)
    members = ", ".join(f"{table}.{name}" for name in functions)
    first = " ".join([*declared, f"local {table} = setmetatable({{create = function({table})"])
    part = _replace_first_line(part, first).removesuffix("\n")
    return f"{part} {members} = {', '.join(functions)} end}}, LAZY)\n"


def _read_from(table: str, functions: list[str], text: str) -> str:
    """Return a text that reads these functions from the table of their part."""
    if not functions:
        return text
    name = re.compile(rf"(?<![.\w])({'|'.join(functions)})\b")
    # Every second piece is a comment or a string.
    pieces = _COMMENT_OR_STRING.split(text)
    pieces[::2] = [name.sub(rf"{table}.\1", piece) for piece in pieces[::2]]
    return "".join(pieces)


def _words(text: str) -> set[str]:
    return set(_WORD.findall(_COMMENT.sub("", text)))


def _replace_first_line(text: str, line: str) -> str:
    return f"{line}\n{text.partition(chr(10))[2]}"


def _empty(text: str) -> str:
    return "\n" * text.count("\n")
