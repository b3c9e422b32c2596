"""The pages for contributors are true: every path they name exists, and every folder and script is named."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from django_delayq.admin.lists.filters import OUTCOMES
from django_delayq.control.jobs import NAMES
from django_delayq.job.ending import ENDED
from django_delayq.job.job import State
from tests.mutation import MUTATIONS
from tests.mutation.core import at
from tests.testing_helpers.docs.pages import PAGES as ALL_PAGES
from tests.testing_helpers.docs.pages import runs, shown, tokens

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "django_delayq"
ARCHITECTURE = (ROOT / "docs" / "internals" / "architecture.md").read_text()
WORDS, STATES = (ROOT / "docs" / "start" / "words.md").read_text().split("## States of a job")
PAGES = {
    "docs/internals/architecture.md": ARCHITECTURE,
    "CONTRIBUTING.md": (ROOT / "CONTRIBUTING.md").read_text(),
}
#: A path from the root of the repository. One with <…> is an example.
PATH = re.compile(r"`((?:django_delayq|tests|docs|benchmarks|example_project|\.ci)/[\w./-]*)`")
LAYERS = re.findall(r"```text\n(.*?)```", ARCHITECTURE, re.DOTALL)
PLANTED = shown("CONTRIBUTING.md", "python")
#: Texts of the repository that name pages or files by an address.
ADDRESSES = [
    *(ROOT / page for page in ALL_PAGES),
    *(path for path in (ROOT / "docs" / "deployment").rglob("*") if path.is_file()),
    *(path for path in PACKAGE.rglob("*") if path.suffix in {".py", ".html", ".js"}),
    ROOT / "pyproject.toml",
]
SITE = "https://django-delayq.readthedocs.io/"
SOURCE = "https://github.com/django-delayq/django-delayq"
#: Pages of the site of the source that are no files.
SOURCE_PAGES = {"", "/issues"}


@pytest.mark.parametrize("page", PAGES)
def test_every_path_a_page_names_exists(page: str) -> None:
    paths = set(PATH.findall(PAGES[page]))
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", ALL_PAGES)
def test_every_link_of_a_page_leads_to_a_file_and_its_heading(page: str) -> None:
    assert [link for link in links(ALL_PAGES[page]) if not leads((ROOT / page).parent, ROOT / page, link)] == []


def links(text: str) -> list[str]:
    """Return the addresses of the links and pictures of a page."""
    inline = [child for token in tokens(text) for child in token.children or ()]
    found = [
        child.attrs.get("href", child.attrs.get("src")) for child in inline if child.type in {"link_open", "image"}
    ]
    return [str(address) for address in found]


def leads(folder: Path, page: Path, link: str) -> bool:
    """Whether a link leads to what exists; one to another site does."""
    path, _, anchor = link.partition("#")
    if "://" in link or link.startswith("mailto:"):
        return "://" not in link or is_address(link)
    target = folder / path if path else page
    return target.exists() and (not anchor or anchor in anchors(target))


def is_address(address: str) -> bool:
    """Whether an address of the site of the documentation, or of the source, leads to what exists."""
    if address.startswith(SITE):
        path, _, anchor = address.removeprefix(f"{SITE}en/stable/").partition("#")
        source = ROOT / "docs" / (path.replace(".html", ".md") if path else "index.md")
        shaped = address.startswith(f"{SITE}en/stable/") and (not path or path.endswith(".html"))
        return shaped and source.is_file() and (not anchor or anchor in anchors(source))
    if address == SOURCE or address.startswith(f"{SOURCE}/"):
        path, _, anchor = address.removeprefix(SOURCE).partition("#")
        if shape := re.fullmatch(r"/(?:blob|raw|tree)/main/(.+)", path):
            target = ROOT / shape[1]
            return target.exists() and (not anchor or anchor in anchors(target))
        return path.rstrip("/") in SOURCE_PAGES
    return True


def test_every_address_of_the_project_leads_to_what_exists() -> None:
    shape = re.compile(rf"(?:{re.escape(SITE)}|{re.escape(SOURCE)})[\w./#-]*")
    found = [(path, address.rstrip(".")) for path in ADDRESSES for address in shape.findall(path.read_text())]
    assert len(found) > 30
    assert [(path, address) for path, address in found if not is_address(address)] == []


@pytest.mark.parametrize(
    "link",
    [
        "nosuch.md",
        "#nosuch",
        "docs/index.md#nosuch",
        f"{SITE}en/latest/index.html",
        f"{SITE}en/stable/nosuch.html",
        f"{SITE}en/stable/index.html#nosuch",
        f"{SOURCE}/blob/main/nosuch.py",
        f"{SOURCE}/nosuch",
    ],
)
def test_a_link_that_leads_nowhere_is_found(link: str) -> None:
    assert not leads(ROOT, ROOT / "README.md", link)


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


def test_every_word_is_described_once() -> None:
    for_users = re.findall(r"^\| \[([^\]]+)\]\(", WORDS, re.MULTILINE)
    table = ARCHITECTURE.split("## Words")[1].split("\n## ")[0]
    rows = re.findall(r"^\| \*\*(.+?)\*\* \|", table, re.MULTILINE)
    others = [word for row in rows for word in row.split(", ")]
    assert len(for_users) > 40 and len(others) > 20
    assert len(for_users) == len(set(for_users))
    assert set(for_users) & set(others) == set()


def test_the_page_of_states_has_each_under_all_of_its_names() -> None:
    rows = re.findall(r'^\| `"(\w+)"` \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$', STATES, re.MULTILINE)
    shown = {State(state): names for state, *names in rows}
    assert list(shown) == list(State)
    for state, (admin, commands, _, _) in shown.items():
        name = NAMES.get(state, state.value if state in ENDED else "")
        assert commands == (f"`{name}`" if name else "not shown")
        assert state not in NAMES or f"*{name.capitalize()}*" in admin
        assert state not in ENDED or f"in *Finished*: {OUTCOMES[state].term}" in admin


@runs(LAYERS)
def test_the_layers_are_those_of_the_contracts() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    assert [block.splitlines() for block in LAYERS] == layers
