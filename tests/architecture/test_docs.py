"""The pages for contributors are true: every path they name exists, and every folder and script is named."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.mutation import MUTATIONS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "django_delayq"
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
PAGES = {
    "docs/architecture.md": ARCHITECTURE,
    "CONTRIBUTING.md": (ROOT / "CONTRIBUTING.md").read_text(),
}
#: A path from the root of the repository. One with <…> is an example.
PATH = re.compile(r"`((?:django_delayq|tests|docs|benchmarks|example_project|\.ci)/[\w./-]*)`")
LINK = re.compile(r"\]\(([\w./-]+)(?:#[\w-]+)?\)")


@pytest.mark.parametrize("page", PAGES)
def test_every_path_a_page_names_exists(page: str) -> None:
    paths = set(PATH.findall(PAGES[page]))
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")], ids=lambda page: page.name)
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    assert [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()] == []


def named_parts() -> set[str]:
    """Return each part of the documentation that an error names, such as "troubleshooting#nothing-runs"."""
    parts = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id="see" | "address_of"), args=[ast.Constant(value=str() as part)]):
                    parts.add(part)
                case ast.Assign(targets=[ast.Name(id="part")], value=ast.Constant(value=str() as part)) if part:
                    parts.add(part)
    return parts


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page: lower case, hyphens for spaces, no punctuation."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_and_heading_that_an_error_names_exists() -> None:
    parts = named_parts()
    assert len(parts) > 20
    missing = []
    for part in sorted(parts):
        name, _, heading = part.partition("#")
        page = ROOT / "docs" / f"{name}.md"
        if not page.exists() or (heading and heading not in anchors(page)):
            missing.append(part)
    assert missing == []


def test_every_section_of_the_page_of_symptoms_that_a_page_links_exists() -> None:
    page = ROOT / "docs" / "troubleshooting.md"
    links = re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", page.read_text())
    assert links
    assert [
        (name, heading) for name, heading in links if heading not in anchors(page.parent / name if name else page)
    ] == []


def test_every_command_of_the_page_for_contributors_names_what_exists() -> None:
    lines = re.findall(r"^\$ (.*)", PAGES["CONTRIBUTING.md"], re.MULTILINE)
    rules = re.findall(r"^([\w -]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    targets = {target for rule in rules for target in rule.split()}
    assert {line.split()[1] for line in lines if line.startswith("make ")} <= targets
    paths = [word for line in lines for word in line.split() if word.startswith("tests/")]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    planted = re.findall(r'tests\.mutation "(.*)"', "\n".join(lines))
    assert planted and set(planted) <= {bug.name for bug in MUTATIONS}


def test_every_folder_of_the_package_is_described() -> None:
    table = ARCHITECTURE.split("## Folders")[1].split("\n## ")[0]
    folders = {path.parent.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.py")} - {"django_delayq"}
    folders -= {"django_delayq/management/commands"}
    assert [folder for folder in sorted(folders) if f"`{folder}/`" not in table] == []


def test_every_script_is_described() -> None:
    tables = ARCHITECTURE.split("## Transitions")[1].split("\n## ")[0]
    scripts = {path.name for path in PACKAGE.glob("store/lua/*.lua")}
    assert set(re.findall(r"`(\w+\.lua)`", tables)) == scripts


def test_the_layers_are_those_of_the_contracts() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    shown = [block.splitlines() for block in re.findall(r"```text\n(.*?)```", ARCHITECTURE, re.DOTALL)]
    assert shown == layers
