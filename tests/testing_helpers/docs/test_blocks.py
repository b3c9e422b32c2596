"""Blocks: a test runs every block of code of every page, so what people copy works."""

import ast
import builtins
import re
import symtable
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from django.core import management

from django_delayq import exceptions
from tests.testing_helpers.docs.pages import DOCS, PAGES, ROOT, RUN, Block, blocks, blocks_in, is_file, tokens

BLOCKS = blocks()
#: Directives of the site -> the lines that they may have. Sphinx builds them, and a wrong one is an error of the build.
DIRECTIVES = {
    "{toctree}": r".*",
    "{include}": r":(relative-docs|start-after|end-before): .*",
    # No code: what the site takes from the docstrings.
    "{eval-rst}": r"|\.\. (auto\w+|currentmodule):: [\w.]+(\(\))?|   :[\w-]+:.*",
}
#: Files that have tests of their own; a page may show a part of one.
FILES = [path.read_text() for path in (DOCS / "deployment").rglob("*") if path.is_file()]
#: What stands before a message: the class of an error, or what Django prints.
KIND = re.compile(rf"(?:{'|'.join(name for name in vars(exceptions) if name[0].isupper())}|CommandError|Warning): ")
#: Where the code places a value in a text.
PLACEHOLDER = r"%(?:\(\w+\))?[-+0-9.]*[rsdif]|\{\w*\}"
#: What a command prints after a question, and what the reader types.
ANSWERED = re.compile(r" \[y/N\] y$")


@pytest.fixture(scope="module")
def run() -> set[str]:
    """The texts of all blocks that tests run: those of each test with the decorator `runs`."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if re.search(r"^@runs", path.read_text(), re.MULTILINE):
            import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return RUN


def test_a_test_runs_each_block(run: set[str]) -> None:
    assert BLOCKS
    left = [block for block in BLOCKS if not is_run(block, run)]
    assert left == [], "No test runs these blocks; one that does has the decorator `runs`."


def is_run(block: Block, run: set[str]) -> bool:
    """Whether a test runs the block, or tests the file of which it is a part."""
    directive, _, argument = block.language.partition(" ")
    if directive in DIRECTIVES:
        is_page = directive != "{include}" or (ROOT / block.page).parent.joinpath(argument).resolve().is_file()
        return is_page and all(re.fullmatch(DIRECTIVES[directive], line) for line in block.text.splitlines())
    if block.text in run:
        return True
    if block.language == "console":
        # test_commands.py checks each command.
        lines = block.text.replace("\\\n", " ").splitlines()
        return lines[0].startswith("$ ") and all(line.startswith("$ ") or is_message(line) for line in lines)
    if block.language == "text":
        return all(is_message(line) for line in block.text.splitlines())
    return block.language in {"yaml", "ini", "json"} and any(block.text in text for text in FILES)


def is_message(line: str) -> bool:
    """Whether a line is a message that the package can print, or one of Django about its commands."""
    text = ANSWERED.sub("", KIND.sub("", line, count=1))
    return not line.startswith("$ ") and any(template.fullmatch(text) for template in templates())


@cache
def templates() -> list[re.Pattern[str]]:
    """Return a pattern for each text of the code with several words, and at least twelve letters of its own."""
    files = [*(ROOT / "django_delayq").rglob("*.py"), Path(management.__file__)]
    nodes = [node for path in files for node in ast.walk(ast.parse(path.read_text()))]
    return [template for node in nodes if (template := _template(_pieces(node)))]


def _pieces(node: ast.AST) -> list[str]:
    """Return the text of a node of the code, in parts; "" stands for a value."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    texts = [part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "%s" for part in parts]
    pieces = re.split(rf"({PLACEHOLDER}|[.;:](?= ))", "".join(texts))
    return ["" if re.fullmatch(PLACEHOLDER, piece) else piece for piece in pieces if piece]


def _template(pieces: list[str]) -> re.Pattern[str] | None:
    own, pattern, ends = "", "", 0
    for piece in pieces:
        if _is_own(own):
            # A page may leave out the rest.
            pattern, ends = f"{pattern}(?:", ends + 1
        own += piece
        pattern += re.escape(piece) if piece else ".*?"
    return re.compile(f"{pattern}{ends * ')?'}\\.?", re.DOTALL) if _is_own(own) else None


def _is_own(text: str) -> bool:
    return " " in text.strip() and len(re.findall(r"[A-Za-z]", text)) >= 12


def test_a_message_that_the_code_does_not_have_is_found() -> None:
    lines = [
        ("DELAYQ has the unknown key 'REDSI' (did you mean 'REDIS'?).", True),
        ("Unknown command: 'run_worker'", True),
        ("DELAYQ had the unknown key 'REDSI'.", False),
        ("Everything is well.", False),
        ("django_delayq eats kittens", False),
        ("CommandError: anything", False),
        ("sum(delayq_queue_slots_needed)", False),
        ("$ python manage.py run_worker", False),
    ]
    # One test: each process that checks a message reads all code.
    assert [line for line, known in lines if is_message(line) != known] == []


def other_forms(text: str) -> Iterator[str]:
    """Yield what a page shows as code in another form than a fence of backticks, and its HTML."""
    for token in tokens(text):
        if token.type == "code_block" or (token.type == "fence" and not token.markup.startswith("`")):
            yield token.content
        if token.type == "html_block" and not re.fullmatch(r"<!--(?:(?!-->).)*-->\s*", token.content, re.DOTALL):
            yield token.content
        if token.type == "inline":
            # MyST reads a fence of colons as code too; the site leaves "%" out.
            yield from re.findall(r"^:::.*", token.content, re.MULTILINE)
            yield from (
                child.content
                for child in token.children or ()
                if child.type == "html_inline" and child.content not in {"<sup>", "</sup>"}
            )


@pytest.mark.parametrize("page", PAGES)
def test_no_page_shows_code_in_another_form(page: str) -> None:
    assert list(other_forms(PAGES[page])) == []


@pytest.mark.parametrize(
    "text",
    [
        "Text:\n\n    print(1)\n",
        "1 line\n\n    print(1)\n",
        "- a list\n\n      print(1)\n",
        "Text:\n\n\tprint(1)\n",
        "~~~python\nprint(1)\n~~~\n",
        ":::python\nprint(1)\n:::\n",
        "Text\n:::{code-block} python\nprint(1)\n:::\n",
        "> :::python\n> print(1)\n> :::\n",
        "<pre>print(1)</pre>\n",
        "<!-- a comment --> <pre>print(1)</pre>\n",
        "Text with <code>print(1)</code>\n",
    ],
)
def test_code_in_another_form_is_found(text: str) -> None:
    assert list(other_forms(text))


def test_a_block_that_nobody_runs_is_found(run: set[str]) -> None:
    texts = [
        *(f"```{language}\nprint(1)\n```\n" for language in ("python", "py", "pycon", "text", "json", "console", "")),
        "> ```python\n> print(1)\n> ```\n",
        "- a list\n\n  ```python\n  print(1)\n  ```\n",
        "````{note}\n```python\nprint(1)\n```\n````\n",
        "```{code-block} python\nprint(1)\n```\n",
        "```{eval-rst}\n.. code:: python\n\n   print(1)\n```\n",
        "```{eval-rst}\nText::\n\n   print(1)\n```\n",
        "```{include} ../README.md\n:literal:\n```\n",
    ]
    found = [Block("docs/index.md", *block) for text in texts for block in blocks_in(text)]
    assert len(found) == len(texts) and [block for block in found if is_run(block, run)] == []


def test_the_first_line_of_a_file_is_its_path() -> None:
    assert is_file("# shop/tasks.py\nprint(1)\n") and not is_file("# settings.py\nDELAYQ = {}\n")


@pytest.mark.parametrize(
    "block",
    [block for block in BLOCKS if block.language == "python" and is_file(block.text)],
    ids=lambda each: each.page,
)
def test_every_name_in_a_file_is_defined(block: Block) -> None:
    assert undefined(block.text) == set()


def test_a_name_that_is_not_defined_is_found() -> None:
    assert undefined("import os\n\ndef f(a):\n    return os, len(a), b\n\nclass C:\n    x: D\n") == {"b", "D"}


def undefined(source: str) -> set[str]:
    """Return the names that a module uses, and that neither it nor Python defines."""
    module = symtable.symtable(source, "", "exec")
    own = {each.get_name() for each in module.get_symbols() if each.is_assigned() or each.is_imported()}
    tables, used = [module], set()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        used |= {
            each.get_name()
            for each in table.get_symbols()
            if each.is_referenced() and (table is module or each.is_global())
        }
    return used - own - set(dir(builtins)) - {"__name__", "__file__"}
