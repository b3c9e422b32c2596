"""Commands: each one that a page shows or names exists, with its options."""

import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class
from django.core.management.base import CommandError, CommandParser

from tests.mutation import MUTATIONS
from tests.testing_helpers.docs.pages import PAGES, ROOT, blocks, inline_code

#: Programs of other projects. The tests of docs/deployment/ run those that can run here.
FOREIGN = {
    "cd",
    "cp",
    "docker",
    "export",
    "git",
    "kubectl",
    "promtool",
    "redis-cli",
    "rm",
    "systemctl",
    "systemd-analyze",
}
#: Options of other programs that sentences name.
OTHER_OPTIONS = {
    "--ds",
    "--max-tasks-per-child",
    "--no-periodic",
    "--pdb",
    "--pin",
    "--quiet",
    "--randomly-seed",
    "--seconds",
    "--with-scheduler",
}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
EXTRA_MODULES = {re.split(r"[^\w-]", each)[0] for extra in EXTRAS.values() for each in extra}
OURS = {name for name, app in get_commands().items() if app == "django_delayq"}


def commands(line: str) -> Iterator[list[str]]:
    """Yield each command of a line, in words: what is piped, or follows another, is one of its own."""
    words: list[str] = []
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;")
    lexer.whitespace_split = True
    for word in [*lexer, ";"]:
        if set(word) <= set("&|;"):
            if words:
                yield words
            words = []
        elif words or word != "sudo":
            words.append(word)


CONSOLE = [
    (block.page, command)
    for block in blocks()
    if block.language == "console"
    for line in block.text.replace("\\\n", " ").splitlines()
    if line.startswith("$ ")
    for command in commands(line.removeprefix("$ "))
]


@pytest.mark.parametrize(
    ("page", "command"), CONSOLE, ids=lambda each: each if isinstance(each, str) else " ".join(each)
)
def test_every_command_exists_with_its_options(page: str, command: list[str]) -> None:
    check(command)


@pytest.mark.parametrize("page", PAGES)
def test_every_command_inside_a_sentence_exists_with_its_options(page: str) -> None:
    for code in inline_code(page):
        check_inline(code)


def check_inline(code: str) -> None:
    """Fail if a command or an option of a sentence does not exist. Its arguments may be patterns, such as ID."""
    shape = re.match(r"((?:python )?manage\.py )?([a-z_]+)", code)
    first, options = shape[2] if shape else "", set(re.findall(r"(?<!\S)--[a-z][\w-]*", code))
    if shape and shape[1]:
        assert first in get_commands(), code
        if not re.search(r"…|\b[A-Z]{2,}\b", code):
            manage(shlex.split(code.removeprefix(shape[1]).split(" | ")[0]))
    elif "_" in first and options:
        assert first in get_commands(), code
    if first in OURS or (shape and shape[1]):
        assert options <= set(parser(first)._option_string_actions), code
    elif code.startswith("-"):
        known = {option for name in (*OURS, "runserver") for option in parser(name)._option_string_actions}
        assert options <= known | OTHER_OPTIONS, code


@cache
def parser(name: str) -> CommandParser:
    """Return the parser of a command."""
    return load_command_class(get_commands()[name], name).create_parser("manage.py", name)


@pytest.mark.parametrize(
    "line",
    [
        "python manage.py run_wroker",
        "python manage.py run_worker --concurency 3",
        "python manage.py delayq_acl janitor --user x --nonsense",
        "pip install 'django-delayq[metrics]'",
        "pip install django-delay",
        "make everything",
        ".venv/bin/python -m pytest tests/unit/test_nothing.py",
        ".venv/bin/python -m tests.mutation nothing",
        "curl http://example.com",
        "sudo python manage.py run_wroker",
        "make lint && make everything",
        "make lint; make everything",
        "make lint | make everything",
    ],
)
def test_a_wrong_command_is_found(line: str) -> None:
    with pytest.raises((AssertionError, CommandError, SystemExit)):
        for command in commands(line):
            check(command)


@pytest.mark.parametrize(
    "code",
    [
        "manage.py run_wroker",
        "python manage.py run_worker --concurency 4",
        "run_worker --concurency 4",
        "run_wroker --concurrency 4",
        "delayq_jobs ID --jsn",
        "--concurency",
        "--tennants QUEUE",
    ],
)
def test_a_wrong_command_inside_a_sentence_is_found(code: str) -> None:
    with pytest.raises((AssertionError, CommandError, SystemExit)):
        check_inline(code)


def check(words: list[str]) -> None:
    """Fail if a command of a page does not exist."""
    program = words[0].removeprefix(".venv/bin/").removeprefix(".venv-demo/bin/")
    if program not in FOREIGN:
        assert program in CHECKS, program
        CHECKS[program](words[1:])


def manage(words: list[str]) -> None:
    """Check a management command and its options."""
    assert words[0] in get_commands(), words[0]
    # An unknown option raises.
    parser(words[0]).parse_args(words[1:])


def python(words: list[str]) -> None:
    """Check a script, or a module of this repository."""
    if words[0] == "manage.py":
        return manage(words[1:])
    if words[0] != "-m":
        assert (ROOT / words[0]).is_file()
        return None
    module, *rest = words[1:]
    if module == "tests.mutation":
        assert rest[0] in {bug.name for bug in MUTATIONS}
    elif module == "pytest":
        assert all((ROOT / path).exists() for path in rest if path.startswith("tests/"))
    elif module not in {"venv", *EXTRA_MODULES}:
        assert any((ROOT / Path(*module.split("."))).with_suffix(end).exists() for end in ("", ".py"))
    return None


def bash(words: list[str]) -> None:
    """Check a script of this repository."""
    assert (ROOT / words[0]).is_file()


def pip(words: list[str]) -> None:
    """Check what is installed: this package, with extras that exist."""
    assert words[0] == "install"
    for word in words[1:]:
        if not word.startswith("-"):
            assert (shape := re.fullmatch(r"(?:django-delayq|\.)(?:\[([\w,]+)\])?", word)), word
            assert set((shape[1] or "").split(",")) <= {*EXTRAS, ""}


def make(words: list[str]) -> None:
    """Check the targets."""
    rules = re.findall(r"^([\w -]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {word for word in words if "=" not in word} <= {target for rule in rules for target in rule.split()}


def tool(_words: list[str]) -> None:
    """A tool of the extra `dev`."""


CHECKS: dict[str, Callable[[list[str]], None]] = {
    "bash": bash,
    "python": python,
    "python3": python,
    "pip": pip,
    "make": make,
    "ruff": tool,
    "mypy": tool,
    "lint-imports": tool,
}
