"""Translations: each language has every text of the source, whole, and as Django reads it."""

import ast
import re
from collections.abc import Iterator
from gettext import GNUTranslations
from io import BytesIO
from pathlib import Path

import django
import pytest
from babel.messages.catalog import Message
from babel.messages.mofile import read_mo

from tests.admin.languages.catalogs import (
    LANGUAGES,
    LOCALE,
    PACKAGE,
    as_mo,
    as_po,
    path_of,
    read,
    untranslated,
    updated,
)

#: What code puts into a text, or the page reads from it: `%(name)s`, `%s`, `%%s` for the script, HTML tags.
_PLACEHOLDER = re.compile(r"%%[fst]|%\(\w+\)s|%%|%s|</?\w+[^>]*>")
_CALLS = ("_", "gettext", "gettext_lazy", "ngettext", "ngettext_lazy", "pgettext", "pgettext_lazy")


def texts(message: Message) -> tuple[list[str], list[str]]:
    """Return the forms of a message, and those of its translation."""
    return (list(message.id), list(message.string)) if message.pluralizable else ([message.id], [message.string])


def test_the_languages_are_those_that_have_a_folder() -> None:
    assert sorted(path.name for path in LOCALE.iterdir()) == sorted(LANGUAGES)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_is_translated(language: str) -> None:
    # `python -m tests.admin.languages` brings the file up to date.
    catalog = updated(language)
    assert [each.id for each in untranslated(catalog)] == []
    assert [each.id for each in catalog if each.id and each.fuzzy] == []
    found = read(language)
    assert list(found.obsolete) == []
    keys = {(each.context, each.id) for each in catalog}
    assert [each.id for each in found if (each.context, each.id) not in keys] == [], "no longer in the source"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_translation_has_the_placeholders_of_its_text(language: str) -> None:
    for message in read(language):
        if not message.id:
            continue
        originals, translations = texts(message)
        # The singular may name no number; then a translation of it may, too.
        whole, required = (sorted(_PLACEHOLDER.findall(each)) for each in (originals[-1], originals[0]))
        for at, translation in enumerate(translations):
            found = sorted(_PLACEHOLDER.findall(translation))
            assert found == whole or (at == 0 and found == required), message.id
            assert translation[:1].isspace() == originals[0][:1].isspace(), message.id


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_compiled_file_is_that_of_the_text(language: str) -> None:
    path, catalog = path_of(language), read(language)
    assert path.read_bytes().decode() == as_po(catalog).decode()
    with path.with_suffix(".mo").open("rb") as file:
        compiled, fresh = GNUTranslations(file), GNUTranslations(BytesIO(as_mo(catalog)))
    # The header names the version of Babel.
    tables = [{key: text for key, text in each._catalog.items() if key} for each in (compiled, fresh)]
    assert tables[0] == tables[1]
    assert [compiled.plural(n) for n in range(200)] == [fresh.plural(n) for n in range(200)]


@pytest.mark.parametrize("language", LANGUAGES)
def test_words_of_django_are_translated_as_django_does(language: str) -> None:
    # Django has one table for all apps, so that ours would replace its own, or the other way round.
    ours = {(each.context, each.id): each.string for each in read(language) if each.id}
    for folder in ("conf", "contrib/admin"):
        path = Path(django.__file__).parent / folder / "locale" / language / "LC_MESSAGES" / "django.mo"
        with path.open("rb") as file:
            for each in read_mo(file):
                if isinstance(each.id, str) and each.id:
                    assert ours.get((each.context, each.id), each.string) == each.string, each.id


def f_string_calls(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of f-strings that translate a text inside."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id in _CALLS:
                    yield node.lineno


def test_no_text_is_translated_inside_an_f_string() -> None:
    # Before Python 3.12 no program that extracts texts looks into them.
    for path in PACKAGE.rglob("*.py"):
        assert list(f_string_calls(ast.parse(path.read_text()))) == [], path


def test_a_new_text_is_missing_in_each_language(tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    (tmp_path / "new.py").write_text('ngettext_lazy("a", "b", "n")')
    (tmp_path / "templates" / "new.html").write_text('{% load i18n %}{% translate "New" context "c" %}')
    found = untranslated(updated("de", tmp_path))
    assert [(each.context, each.id) for each in found] == [(None, ("a", "b")), ("c", "New")]
