"""Pages: the Python files that the docs show."""

import re
from pathlib import Path

from tests.django_tasks.compat import NAME as FLAVOUR

ROOT = Path(__file__).parents[3]
#: Name of another task queue in docs/migrating.md -> its section.
SECTIONS = {part.split("\n")[0]: part for part in (ROOT / "docs" / "migrating.md").read_text().split("\n## From ")[1:]}
README = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def shown_tests() -> dict[str, str]:
    """Return the project of docs/testing.md: path -> text."""
    return files_in((ROOT / "docs" / "testing.md").read_text())


def page(name: str) -> dict[str, str]:
    """Return the files that a page shows, with apps of its own: path -> text."""
    return files_in((ROOT / "docs" / name).read_text())


def migrating_page(section: str, part: str, *, app: str = "shop") -> dict[str, str]:
    """Return the files that docs/migrating.md shows for another task queue; `part` is "Before" or "After"."""
    return files_in(SECTIONS[section].split(f"### {part}\n")[1].split("\n### ")[0], app=app)


def recurring_jobs(section: str, part: str, *, app: str = "shop") -> dict[str, str]:
    """Return the files that a section of docs/migrating.md shows for recurring jobs; {} if it has none."""
    _, _, shown = SECTIONS[section].partition("### Recurring jobs\n")
    return files_in(shown.split(f"#### {part}\n")[1].split("\n#### ")[0], app=app) if shown else {}


def readme(app: str) -> dict[str, str]:
    """Return the tasks of the README and its test of them: path -> text."""
    [tasks] = [text for text in README if text.startswith("# shop/tasks.py")]
    [shown] = [text for text in README if "def test_" in text]
    return {f"{app}/tasks.py": tasks, f"{app}/test_readme.py": _of_app(shown, app)}


def files_in(text: str, *, app: str = "shop") -> dict[str, str]:
    """Return path -> text of every block whose first line is a path; `app` replaces the app `shop`."""
    blocks = re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len({name for name, _ in blocks}) == len(blocks)
    return {name.replace("shop/", f"{app}/"): _of_app(source, app) for name, source in blocks}


def _of_app(source: str, app: str) -> str:
    # Django's own tasks, or their backport.
    return re.sub(r"\bshop(?=\.| import)", app, source.replace("from django.tasks import", f"from {FLAVOUR} import"))
