"""The pages for contributors are true: every path they name exists, and every folder and script is named."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.mutation import MUTATIONS
from tests.mutation.core import at
from tests.testing_helpers.docs.pages import runs, shown

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "django_delayq"
ARCHITECTURE = (ROOT / "docs" / "internals" / "architecture.md").read_text()
PAGES = {
    "docs/internals/architecture.md": ARCHITECTURE,
    "CONTRIBUTING.md": (ROOT / "CONTRIBUTING.md").read_text(),
}
#: A path from the root of the repository. One with <…> is an example.
PATH = re.compile(r"`((?:django_delayq|tests|docs|benchmarks|example_project|\.ci)/[\w./-]*)`")
LAYERS = re.findall(r"```text\n(.*?)```", ARCHITECTURE, re.DOTALL)
PLANTED = shown("CONTRIBUTING.md", "python")
SITE = re.compile(r"https://django-delayq\.readthedocs\.io/en/stable/([\w./-]+\.html)(?:#([\w-]+))?")
ANCHOR = re.compile(r"\]\(([\w./-]*\.md|)#([\w-]+)\)")
LINK = re.compile(r"\]\(([\w./-]+)(?:#[\w-]+)?\)")


@pytest.mark.parametrize("page", PAGES)
def test_every_path_a_page_names_exists(page: str) -> None:
    paths = set(PATH.findall(PAGES[page]))
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")], ids=lambda page: page.name)
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    assert [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()] == []


def test_every_address_of_the_site_leads_to_a_page_and_its_heading() -> None:
    texts = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    texts += [path for path in PACKAGE.rglob("*") if path.suffix in {".py", ".html", ".js"}]
    addresses = {address for path in texts for address in SITE.findall(path.read_text())}
    assert len(addresses) > 30
    for page, anchor in addresses:
        source = ROOT / "docs" / page.replace(".html", ".md")
        assert source.is_file(), page
        assert not anchor or anchor in anchors(source), f"{page}#{anchor}"


def test_every_anchor_of_a_link_is_a_heading() -> None:
    for page in [ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]:
        for link, anchor in ANCHOR.findall(page.read_text()):
            target = (page.parent / link) if link else page
            assert anchor in anchors(target), f"{page.relative_to(ROOT)}: {link}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, or of one that it includes, as GitHub and the site make them."""
    text = page.read_text()
    if included := re.match(r"```\{include\} (\S+)", text):
        text = (page.parent / included[1]).read_text()
    headings = re.findall(r"^#+ (.*)", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_picture_of_the_readme_is_in_the_repository() -> None:
    pictures = re.findall(r"!\[[^\]]+\]\((\S+)\)", (ROOT / "README.md").read_text())
    raw = "https://github.com/django-delayq/django-delayq/raw/main/"
    assert pictures
    assert [
        each for each in pictures if not each.startswith(raw) or not (ROOT / each.removeprefix(raw)).is_file()
    ] == []


def test_every_picture_of_a_page_is_described() -> None:
    for page in ROOT.glob("docs/**/*.md"):
        for text, _ in re.findall(r"!\[([^\]]*)\]\((\S+)\)", page.read_text()):
            assert len(text) > 15, f"{page.name}: {text!r}"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 300


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


def test_every_command_of_the_page_for_contributors_names_what_exists() -> None:
    lines = re.findall(r"^\$ (.*)", PAGES["CONTRIBUTING.md"], re.MULTILINE)
    rules = re.findall(r"^([\w -]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    targets = {target for rule in rules for target in rule.split()}
    assert {line.split()[1] for line in lines if line.startswith("make ")} <= targets
    paths = [word for line in lines for word in line.split() if word.startswith("tests/")]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    planted = re.findall(r'tests\.mutation "(.*)"', "\n".join(lines))
    assert planted and set(planted) <= {bug.name for bug in MUTATIONS}


@runs(PLANTED)
def test_the_planted_bug_that_the_page_shows_is_one_of_them() -> None:
    [(bug, tests)] = eval(f"{{{PLANTED}}}", {"at": at}).items()
    assert MUTATIONS[bug] == tests


def test_every_folder_of_the_package_is_described() -> None:
    table = ARCHITECTURE.split("## Folders")[1].split("\n## ")[0]
    folders = {path.parent.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*.py")} - {"django_delayq"}
    folders -= {"django_delayq/management/commands"}
    assert [folder for folder in sorted(folders) if f"`{folder}/`" not in table] == []


def test_every_script_is_described() -> None:
    tables = ARCHITECTURE.split("## Transitions")[1].split("\n## ")[0]
    scripts = {path.name for path in PACKAGE.glob("store/lua/*.lua")}
    assert set(re.findall(r"`(\w+\.lua)`", tables)) == scripts


@runs(LAYERS)
def test_the_layers_are_those_of_the_contracts() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    assert [block.splitlines() for block in LAYERS] == layers
