"""docs/reference/settings.md and the README's table agree with the fields of Config."""

import ast
import re
from pathlib import Path

from django_delayq.conf.config import AdminConfig
from django_delayq.conf.settings import SETTINGS
from django_delayq.conf.validators import settings_of
from tests.architecture.settings_page import PAGE, default_text, page

README = (Path(__file__).parents[2] / "README.md").read_text()
FIELDS = {key: next(iter(fields.values())) for key, fields in SETTINGS.items()}
ADMIN = settings_of(AdminConfig)


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
