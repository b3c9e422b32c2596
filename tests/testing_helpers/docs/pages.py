"""Pages: the README and the pages of docs/, and the blocks of code that they show.

A test that runs a block, or compares it, has the decorator `runs`; `test_blocks.py` looks for blocks that no test runs.
"""

import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.django_tasks.compat import NAME as FLAVOUR

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
#: Every page that people read, by its path from the root of the repository.
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in (*sorted(ROOT.glob("*.md")), ROOT / "example_project" / "README.md", *sorted(DOCS.rglob("*.md")))
}
#: Texts of blocks that a test runs, or compares with what the code prints.
RUN: set[str] = set()
# Settings are no file of an app: each page shows some lines of them.
_FILE = re.compile(r"# (?!settings\.py)(\S+\.py)\n(.*)", re.DOTALL)
_MARKDOWN = MarkdownIt("commonmark").enable("table")
_Test = TypeVar("_Test", bound=Callable[..., None])


class Block(NamedTuple):
    """A block of code of a page, wherever it stands."""

    page: str
    language: str
    text: str


@cache
def tokens(text: str) -> list[Token]:
    """Return what a Markdown parser finds in a text."""
    return _MARKDOWN.parse(text)


@cache
def blocks() -> tuple[Block, ...]:
    """Return the blocks of all pages; one in a list or a quotation without its indentation."""
    return tuple(Block(page, *found) for page, text in PAGES.items() for found in blocks_in(text))


def blocks_in(text: str) -> list[tuple[str, str]]:
    """Return the language and the text of each block; the language of an indented one is "indented"."""
    found = [token for token in tokens(text) if token.type in {"fence", "code_block"}]
    return [(token.info.strip() if token.type == "fence" else "indented", token.content) for token in found]


@cache
def inline_code(name: str) -> list[str]:
    """Return the code inside the sentences, headings and tables of a page."""
    found = [child for token in tokens(PAGES[name]) for child in token.children or ()]
    return sorted({child.content for child in found if child.type == "code_inline"})


def runs(*texts: str | Iterable[str]) -> Callable[[_Test], _Test]:
    """Record which blocks a test runs, or compares with what the code prints. Without the test nothing runs them."""

    def record(test: _Test) -> _Test:
        assert test.__name__.startswith("test_"), "pytest does not run this"
        for each in texts:
            RUN.update([each] if isinstance(each, str) else each)
        return test

    return record


def shown(name: str, language: str, begins: str = "") -> str:
    """Return the only block of a page that is in a language and begins so."""
    [text] = [block.text for block in blocks() if block[:2] == (name, language) and block.text.startswith(begins)]
    return text


def python(name: str) -> list[str]:
    """Return the Python blocks of a page."""
    return [block.text for block in blocks() if block[:2] == (name, "python")]


def page(name: str) -> dict[str, str]:
    """Return the files that a page of docs/ shows, with apps of its own: path -> text."""
    return files_in(PAGES[f"docs/{name}"])


def snippets(name: str) -> list[str]:
    """Return the Python of a page that is no file."""
    return [text for text in python(name) if not is_file(text) and not text.startswith("# settings.py\n")]


def settings_blocks() -> list[Block]:
    """Return the blocks of all pages of docs/ that begin with `# settings.py`."""
    return [block for block in blocks() if block.page != "README.md" and block.text.startswith("# settings.py\n")]


def is_file(text: str) -> bool:
    """Whether the first line of a block is the path of a file of a project, such as `# shop/tasks.py`."""
    return _FILE.match(text) is not None


#: Name of another task queue in docs/start/migrating.md -> its section.
SECTIONS = {part.split("\n")[0]: part for part in PAGES["docs/start/migrating.md"].split("\n## From ")[1:]}


def migrating_part(section: str, part: str) -> str:
    """Return the text under a heading of a section of docs/start/migrating.md; `part` is "Before" or "After"."""
    return SECTIONS[section].split(f"### {part}\n")[1].split("\n### ")[0]


def recurring_part(section: str, part: str) -> str:
    """Return the text about recurring jobs of a section of docs/start/migrating.md; "" if it has none."""
    _, _, text = SECTIONS[section].partition("### Recurring jobs\n")
    return text.split(f"#### {part}\n")[1].split("\n#### ")[0] if text else ""


def readme(app: str) -> dict[str, str]:
    """Return the tasks of the README and its test of them: path -> text."""
    tasks, test = readme_blocks()
    return {f"{app}/tasks.py": tasks, f"{app}/test_readme.py": _of_app(test, app)}


def readme_blocks() -> tuple[str, str]:
    """Return the blocks of the README with its tasks, and with the test of them."""
    [tasks] = [text for text in python("README.md") if text.startswith("# shop/tasks.py")]
    [test] = [text for text in python("README.md") if "def test_" in text]
    return tasks, test


def file_blocks(text: str) -> list[str]:
    """Return the blocks whose first line is a path."""
    return [block for language, block in blocks_in(text) if language == "python" and is_file(block)]


def files_in(text: str, *, app: str = "shop") -> dict[str, str]:
    """Return path -> text of every block whose first line is a path; `app` replaces the app `shop`."""
    found = [shape.groups() for block in file_blocks(text) if (shape := _FILE.match(block))]
    assert len(dict(found)) == len(found)
    return {name.replace("shop/", f"{app}/"): _of_app(source, app) for name, source in found}


def _of_app(source: str, app: str) -> str:
    # Django's own tasks, or their backport.
    return re.sub(r"\bshop(?=\.| import)", app, source.replace("from django.tasks import", f"from {FLAVOUR} import"))
