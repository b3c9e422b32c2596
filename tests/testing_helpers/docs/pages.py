"""Pages: the README and the pages of docs/, and the blocks of code that they show.

What returns the text of a block for a test to run also records it in `RUN`; `test_blocks.py` looks for blocks that no
test runs.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

from tests.django_tasks.compat import NAME as FLAVOUR

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
#: Every page that people read, by its path from the root of the repository.
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md")))
}
#: Texts of blocks that a test runs, or compares with what the code prints.
RUN: set[str] = set()
# Settings are no file of an app: each page shows some lines of them.
_FILE = re.compile(r"# (?!settings\.py)(\S+\.py)\n(.*)", re.DOTALL)
_BLOCK = re.compile(r"^( *)(`{3,}|~{3,})([^\n]*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    language: str
    text: str


def blocks() -> list[Block]:
    """Return the blocks of all pages; one in a list without its indentation."""
    return [
        Block(page, info.strip(), dedent(body))
        for page, text in PAGES.items()
        for _, _, info, body in _BLOCK.findall(text)
    ]


def run(texts: Iterable[str]) -> list[str]:
    """Return the texts of blocks, which the caller runs."""
    shown = list(texts)
    RUN.update(shown)
    return shown


def shown(name: str, language: str, begins: str = "") -> str:
    """Return the only block of a page that is in a language and begins so; the caller runs or compares it."""
    [text] = run(block.text for block in blocks() if block[:2] == (name, language) and block.text.startswith(begins))
    return text


def page(name: str) -> dict[str, str]:
    """Return the files that a page of docs/ shows, with apps of its own: path -> text."""
    return files_in(PAGES[f"docs/{name}"])


def snippets(name: str) -> list[str]:
    """Return the Python of a page that is no file."""
    found = [block.text for block in blocks() if block[:2] == (name, "python")]
    return run(text for text in found if not is_file(text) and not text.startswith("# settings.py\n"))


def settings_blocks() -> list[Block]:
    """Return the blocks of all pages of docs/ that begin with `# settings.py`."""
    found = [block for block in blocks() if block.page != "README.md" and block.text.startswith("# settings.py\n")]
    run(block.text for block in found)
    return found


def is_file(text: str) -> bool:
    """Whether the first line of a block is the path of a file of a project, such as `# shop/tasks.py`."""
    return _FILE.match(text) is not None


#: Name of another task queue in docs/start/migrating.md -> its section.
SECTIONS = {part.split("\n")[0]: part for part in PAGES["docs/start/migrating.md"].split("\n## From ")[1:]}


def migrating_page(section: str, part: str, *, app: str = "shop") -> dict[str, str]:
    """Return the files that docs/start/migrating.md shows for another task queue; `part` is "Before" or "After"."""
    return files_in(SECTIONS[section].split(f"### {part}\n")[1].split("\n### ")[0], app=app)


def recurring_jobs(section: str, part: str, *, app: str = "shop") -> dict[str, str]:
    """Return the files that a section of docs/start/migrating.md shows for recurring jobs; {} if it has none."""
    _, _, shown = SECTIONS[section].partition("### Recurring jobs\n")
    return files_in(shown.split(f"#### {part}\n")[1].split("\n#### ")[0], app=app) if shown else {}


def readme(app: str) -> dict[str, str]:
    """Return the tasks of the README and its test of them: path -> text."""
    python = re.findall(r"^```python\n(.*?)^```", PAGES["README.md"], re.MULTILINE | re.DOTALL)
    [tasks] = run(text for text in python if text.startswith("# shop/tasks.py"))
    [shown] = run(text for text in python if "def test_" in text)
    return {f"{app}/tasks.py": tasks, f"{app}/test_readme.py": _of_app(shown, app)}


def files_in(text: str, *, app: str = "shop") -> dict[str, str]:
    """Return path -> text of every block whose first line is a path; `app` replaces the app `shop`."""
    shown = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    found = [shape.groups() for block in shown if (shape := _FILE.match(block))]
    run(block for block in shown if is_file(block))
    assert len(dict(found)) == len(found)
    return {name.replace("shop/", f"{app}/"): _of_app(source, app) for name, source in found}


def _of_app(source: str, app: str) -> str:
    # Django's own tasks, or their backport.
    return re.sub(r"\bshop(?=\.| import)", app, source.replace("from django.tasks import", f"from {FLAVOUR} import"))
