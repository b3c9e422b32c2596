"""docs/reference/settings.md and the README's table agree with the fields of Config."""

import ast
import re

import pytest
from django.conf import global_settings

from django_delayq.conf.config import AdminConfig
from django_delayq.conf.settings import EXTRA_KEYS, SETTINGS
from django_delayq.conf.validators import settings_of
from tests.architecture.settings_page import PAGE, default_text, page
from tests.testing_helpers.docs.pages import PAGES, ROOT, inline_code

README = PAGES["README.md"]
FIELDS = {key: next(iter(fields.values())) for key, fields in SETTINGS.items()}
ADMIN = settings_of(AdminConfig)
#: These pages have names of other task queues, and of constants of the tests.
OTHERS = {"docs/start/migrating.md", "docs/internals/architecture.md"}
#: Names of Redis, Docker, Django and the tests that the code does not have.
FOREIGN = {"CMD", "CONN_MAX_AGE", "FLUSHALL", "MONITOR", "SCAN", "SLOWLOG", "SURVIVED"}


def test_the_page_is_the_generated_one() -> None:
    assert PAGE.read_text() == page(), "docs/reference/settings.md is not up to date: run `make pages` and commit it"


def test_the_page_has_a_section_for_every_setting_and_no_other() -> None:
    assert sorted(re.findall(r"^### `([A-Z_]+)`", page(), re.MULTILINE)) == sorted([*FIELDS, *ADMIN])


def test_every_setting_has_a_help_of_sentences() -> None:
    for key, field in {**FIELDS, **ADMIN}.items():
        assert re.fullmatch(r"[A-Z`].*\.", field.metadata["help"]), key


def test_the_page_names_the_defaults_of_the_admin() -> None:
    section = page().split("## Django's admin")[1]
    defaults = dict(re.findall(r"^### `([A-Z_]+)`\n.*?^- Default: `(.*?)`$", section, re.MULTILINE | re.DOTALL))
    shown = {key: getattr(field.default, "pattern", field.default) for key, field in ADMIN.items()}
    assert {key: ast.literal_eval(value) for key, value in defaults.items()} == shown


def test_the_table_of_the_readme_names_settings_that_exist_and_their_defaults() -> None:
    table = README.split("## Settings")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.*?) \|", table, re.MULTILINE)
    assert "REDIS" in dict(rows) and len(rows) == len(dict(rows))
    assert dict(rows) == {key: default_text(FIELDS[key]) for key, _ in rows}


def unknown_names(code: str, known: set[str]) -> set[str]:
    """Return the names of settings inside a sentence that do not exist."""
    keys = re.match(r'DELAYQ\["(\w+)"\](?:\["(\w+)"\])?', code)
    missing = {keys[1]} - SETTINGS.keys() if keys else set()
    if keys and keys[1] == "ADMIN" and keys[2]:
        missing |= {keys[2]} - ADMIN.keys()
    return missing | ({code} - known if re.fullmatch(r"[A-Z][A-Z0-9_]+", code) else set())


@pytest.fixture(scope="module")
def known() -> set[str]:
    """All words in capitals of the code and of Django's settings."""
    files = [ROOT / "Makefile"]
    for folder, kinds in {"django_delayq": ("py", "lua"), "example_project": ("py",)}.items():
        files += [path for kind in kinds for path in (ROOT / folder).rglob(f"*.{kind}")]
    # Also the end of a private name.
    words = {word for path in files for word in re.findall(r"(?<![A-Za-z0-9])[A-Z][A-Z0-9_]+", path.read_text())}
    # Tests have wrong names of settings, and variables of the environment.
    for path in (ROOT / "tests").rglob("*.py"):
        words |= set(re.findall(r"\bDELAYQ_[A-Z_]+", path.read_text()))
    return words | {*dir(global_settings), *FIELDS, *ADMIN, *EXTRA_KEYS, *FOREIGN}


def test_every_setting_inside_a_sentence_exists(known: set[str]) -> None:
    wrong = {
        (name, code) for name in PAGES if name not in OTHERS for code in inline_code(name) if unknown_names(code, known)
    }
    assert wrong == set()


@pytest.mark.parametrize("code", ["CONCURENCY", 'DELAYQ["REDSI"]', 'DELAYQ["ADMIN"]["REDATC"]'])
def test_a_setting_that_does_not_exist_is_found(code: str, known: set[str]) -> None:
    assert unknown_names(code, known)
