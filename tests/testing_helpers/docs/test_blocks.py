"""Blocks: a test runs every fenced block of every page, so what people copy works."""

import ast
import re
import shlex
import tomllib
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from django.core import management
from django.core.management import get_commands, load_command_class
from django.core.management.base import CommandError

from tests.mutation import MUTATIONS
from tests.testing_helpers.docs.pages import DOCS, PAGES, ROOT, RUN, Block, blocks, is_file

BLOCKS = blocks()
#: Modules that run blocks, some of them when they are imported. `project` gathers the files of most pages.
RUNNERS = (
    "tests.architecture.test_docs",
    "tests.architecture.test_readme",
    "tests.deployment.test_page",
    "tests.django_tasks.test_page",
    "tests.integration.first_mistakes.conftest",
    "tests.integration.first_mistakes.test_first_mistakes",
    "tests.integration.monitoring.test_alerts",
    "tests.integration.task.celery_beat.test_celery_beat",
    "tests.testing_helpers.docs.test_logging",
    "tests.testing_helpers.docs.test_middleware",
    "tests.testing_helpers.docs.test_output",
    "tests.testing_helpers.docs.test_snippets",
    "tests.testing_helpers.test_assertions",
    "tests.unit.worker.test_done_log",
)
#: Directives of the site. Sphinx builds them, and a wrong one is an error of the build.
DIRECTIVES = {"{toctree}", "{include}", "{eval-rst}", "{note}", "{warning}"}
#: Files that have tests of their own; a page may show a part of one.
FILES = [path.read_text() for path in (DOCS / "deployment").rglob("*") if path.is_file()]
#: Programs of other projects. The tests of docs/deployment/ run those that can run here.
FOREIGN = {"docker", "git", "kubectl", "promtool", "redis-cli", "rm", "sudo", "systemctl", "systemd-analyze", "wait"}
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
EXTRA_MODULES = {re.split(r"[^\w-]", each)[0] for extra in EXTRAS.values() for each in extra}
CONSOLE = [
    (block.page, line.removeprefix("$ "))
    for block in BLOCKS
    if block.language == "console"
    for line in block.text.replace("\\\n", " ").splitlines()
    if line.startswith("$ ")
]
#: Commands inside sentences and tables. One with a word in capitals, or with …, is a pattern.
INLINE = [
    (page, command)
    for page, text in PAGES.items()
    for command in re.findall(r"`(?:python )?manage\.py ([^`]+)`", " ".join(text.split()))
    if not re.search(r"…|\b[A-Z]{2,}\b", command)
]


@pytest.fixture(scope="module")
def run() -> set[str]:
    """The texts of all blocks that tests run."""
    for name in RUNNERS:
        import_module(name)
    migrating = import_module("tests.testing_helpers.docs.test_projects")
    migrating.project()
    for section in migrating.SECTIONS:
        # Code of other systems is compiled.
        migrating.migrating_page(section, "Before")
        migrating.recurring_jobs(section, "Before")
    return RUN


@pytest.mark.parametrize("number", range(len(BLOCKS)), ids=lambda number: f"{BLOCKS[number].page}-{number}")
def test_a_test_runs_each_block(number: int, run: set[str]) -> None:
    block = BLOCKS[number]
    if block.language.split(" ")[0] in DIRECTIVES:
        assert "code-block" not in block.text and "sourcecode" not in block.text
    elif block.language == "console":
        # The next test runs each of its lines.
        assert any(line.startswith("$ ") for line in block.text.splitlines())
    else:
        assert is_run(block, run), f"No test runs this block of {block.page}; pages.py says how one does:\n{block.text}"


def is_run(block: Block, run: set[str]) -> bool:
    """Whether a test runs the block, or tests the file of which it is a part."""
    if block.text in run:
        return True
    if block.language == "text":
        return all(is_message(line) for line in block.text.splitlines())
    return block.language not in {"python", "pycon"} and any(block.text in text for text in FILES)


def is_message(line: str) -> bool:
    """Whether a line is a message that the package can print, or one of Django about its commands."""
    return not line.startswith("$ ") and any(template.search(line) for template in templates())


@cache
def templates() -> list[re.Pattern[str]]:
    """Return a pattern for each text of the code with several words, and at least twelve letters of its own."""
    files = [*(ROOT / "django_delayq").rglob("*.py"), Path(management.__file__)]
    nodes = [node for path in files for node in ast.walk(ast.parse(path.read_text()))]
    found = []
    for node in nodes:
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        texts = [
            part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else None for part in parts
        ]
        own = "".join(text for text in texts if text)
        if " " in own and len(re.findall(r"[A-Za-z]", own)) >= 12:
            placed = (re.sub(r"%[rsd.\df]+", ".+?", re.escape(text)) if text else ".+?" for text in texts)
            # A page may leave out the end: the period, and the address that follows it.
            found.append(re.compile(re.sub(r"(?:\.\+\?|\\[ .])+$", "", "".join(placed))))
    return found


def test_a_message_that_the_code_does_not_have_is_found() -> None:
    assert is_message("DELAYQ has the unknown key 'REDSI' (did you mean 'REDIS'?).")
    assert is_message("Unknown command: 'run_worker'")
    assert not is_message("DELAYQ had the unknown key 'REDSI'.")
    assert not is_message("Everything is well.")
    assert not is_message("sum(delayq_queue_slots_needed)")
    assert not is_message("$ python manage.py run_worker")


def test_no_page_shows_code_that_is_not_fenced() -> None:
    for page, text in PAGES.items():
        prose = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)
        assert not re.search(r"^(?![ \d*-])[^\n]*\n\n {4}\S", prose, re.MULTILINE), page
        assert "<pre>" not in prose and "<code>" not in prose, page


def test_a_block_that_nobody_runs_is_found(run: set[str]) -> None:
    for language in ("python", "pycon", "text", "json", "yaml", "ini", ""):
        assert not is_run(Block("docs/index.md", language, "print(1)\n"), run)
    assert is_file("# shop/tasks.py\nprint(1)\n") and not is_file("# settings.py\nDELAYQ = {}\n")


@pytest.mark.parametrize(("page", "line"), CONSOLE)
def test_every_command_exists_with_its_options(page: str, line: str) -> None:
    check(shlex.split(line, comments=True))


@pytest.mark.parametrize(("page", "command"), INLINE)
def test_every_command_inside_a_sentence_exists_with_its_options(page: str, command: str) -> None:
    manage(shlex.split(command.split(" | ")[0]))


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
    ],
)
def test_a_wrong_command_is_found(line: str) -> None:
    with pytest.raises((AssertionError, CommandError, SystemExit)):
        check(shlex.split(line))


def check(words: list[str]) -> None:
    """Fail if a command of a page does not exist."""
    program = words[0].removeprefix(".venv/bin/").removeprefix(".venv-demo/bin/")
    if program not in FOREIGN:
        assert program in CHECKS, program
        CHECKS[program](words[1:])


def manage(words: list[str]) -> None:
    """Check a management command and its options."""
    assert words[0] in get_commands(), words[0]
    command = load_command_class(get_commands()[words[0]], words[0])
    # An unknown option raises.
    command.create_parser("manage.py", words[0]).parse_args(words[1:])


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
