"""Findings: what the checks of the package can report, read from its code. A value that they insert is shown as `…`."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import django_delayq

PACKAGE = Path(django_delayq.__file__).parent
#: Text with a value right behind a word, such as " in shard 2", which there is not always.
_OPTIONAL = re.compile(r"(?<=\w)…(?=[ :.,;])")


@dataclass(frozen=True, slots=True)
class SystemCheck:
    """One message of the system checks."""

    id: str
    #: "error" or "warning".
    level: str
    #: Its cure; "" if the message itself has it.
    hint: str


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a text stands: the function, and the constants of its module."""

    function: ast.FunctionDef
    constants: dict[str, ast.expr]


class Source:
    """A module of the package."""

    def __init__(self, path: str) -> None:
        self._tree = ast.parse((PACKAGE / path).read_text())
        self._constants = {
            node.targets[0].id: node.value
            for node in self._tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }

    @cached_property
    def _functions(self) -> dict[str, ast.FunctionDef]:
        return {node.name: node for node in ast.walk(self._tree) if isinstance(node, ast.FunctionDef)}

    def system_checks(self) -> Iterator[SystemCheck]:
        """Yield every Error and Warning with an id."""
        for function in self._functions.values():
            for call in ast.walk(function):
                if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
                    continue
                given = {each.arg: each.value for each in call.keywords}
                if call.func.id in ("Error", "Warning") and isinstance(name := given.get("id"), ast.Constant):
                    hint = given.get("hint") or (call.args[1] if len(call.args) > 1 else None)
                    scope = Scope(function, self._constants)
                    yield SystemCheck(str(name.value), call.func.id.lower(), _text(hint, scope))

    def sentences(self, *names: str) -> list[str]:
        """Return each text that these functions yield, or append to their findings, in the order of the code."""
        found = []
        for name in names:
            function = self._functions[name]
            values = [
                *((node.lineno, node.value) for node in ast.walk(function) if isinstance(node, ast.Yield)),
                *((node.lineno, node.args[0]) for node in ast.walk(function) if _is_append(node)),
            ]
            scope = Scope(function, self._constants)
            texts = [_text(value, scope) for _, value in sorted(values, key=lambda each: each[0])]
            found += [text for text in texts if " " in text]
        return found


def _is_append(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append"):
        return False
    return isinstance(node.func.value, ast.Attribute) and node.func.value.attr in ("faults", "warnings")


def _text(node: ast.expr | None, scope: Scope) -> str:
    """Return the text of an expression, as far as the code has it."""
    return _OPTIONAL.sub("", _raw(node, scope))


def _raw(node: ast.expr | None, scope: Scope) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_raw(value, scope) for value in values)
        case ast.FormattedValue(value=value):
            return _raw(value, scope) or "…"
        case ast.Name(id=name) if name in scope.constants:
            return _raw(scope.constants[name], scope)
        case ast.Name(id=name):
            return _assigned(name, before=node.lineno, scope=scope)
        case ast.Call(func=ast.Name(id="see"), args=[ast.Constant(value=str(part))]):
            return link(part)
    return ""


def link(part: str) -> str:
    """Return the sentence of `exceptions.see()` with a link in place of the address."""
    page, _, heading = part.partition("#")
    return f"See [{page.rpartition('/')[2].capitalize()}]({page}.md{heading and '#'}{heading})."


def _assigned(name: str, *, before: int, scope: Scope) -> str:
    """Return the text that a variable got last before a line; "" if it got anything else."""
    last: ast.expr | None = None
    for statement in ast.walk(scope.function):
        if not isinstance(statement, ast.Assign) or statement.lineno >= before:
            continue
        for target in statement.targets:
            names, values = [target], [statement.value]
            if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
                names, values = target.elts, statement.value.elts
            for each, value in zip(names, values, strict=True):
                if isinstance(each, ast.Name) and each.id == name:
                    last = value
    return _raw(last, scope)
