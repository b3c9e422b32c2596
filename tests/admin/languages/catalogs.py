"""The translations of the package: what its code says, what each language has, and how the two are brought together.

Babel reads and writes the files, so that nobody needs the programs of gettext.
"""

import re
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from django.utils.translation.template import templatize

import django_delayq

PACKAGE = Path(django_delayq.__file__).parent
LOCALE = PACKAGE / "locale"
LANGUAGES = ("de", "es", "fr", "ja", "pt_BR")
#: The function calls that mark a text, with the places of the texts and of the context ("c") in their arguments.
_KEYWORDS: dict[str, Any] = {
    **dict.fromkeys(("_", "gettext", "gettext_lazy", "gettext_noop"), None),
    **dict.fromkeys(("ngettext", "ngettext_lazy"), (1, 2)),
    **dict.fromkeys(("pgettext", "pgettext_lazy"), ((1, "c"), 2)),
    **dict.fromkeys(("npgettext", "npgettext_lazy"), ((1, "c"), 2, 3)),
}


@cache
def extracted(package: Path = PACKAGE) -> Catalog:
    """Return the messages of the source: those of the Python files and of the templates."""
    found = Catalog()
    for path, code in _sources(package):
        for _line, text, _comments, context in extract("python", BytesIO(code), keywords=_KEYWORDS):
            found.add(text, locations=[(path, 0)], context=context)
    return found


def _sources(package: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the Python code of each file; Django turns templates into calls of gettext."""
    for path in sorted(package.rglob("*.py")):
        yield str(path.relative_to(package)), path.read_bytes()
    for path in sorted((package / "templates").rglob("*.html")):
        yield str(path.relative_to(package)), templatize(path.read_text(), origin=path.name).encode()


def path_of(language: str) -> Path:
    """Return the file with the translations of a language."""
    return LOCALE / language / "LC_MESSAGES" / "django.po"


def read(language: str) -> Catalog:
    """Return the translations of a language, as its file has them."""
    path = path_of(language)
    if not path.exists():
        return Catalog(language)
    with path.open("rb") as file:
        return read_po(file, locale=language)


def updated(language: str, package: Path = PACKAGE) -> Catalog:
    """Return the translations of a language with the messages of the source; new ones are empty, gone ones are gone."""
    catalog = read(language)
    # Copies: the languages must not share their new messages.
    catalog.update(deepcopy(extracted(package)), no_fuzzy_matching=True, update_creation_date=False)
    catalog.obsolete.clear()
    return catalog


def untranslated(catalog: Catalog) -> list[Message]:
    """Return the messages that have no translation, or not all of its plural forms."""
    return [each for each in catalog if each.id and not (all(each.string) if each.pluralizable else each.string)]


def as_po(catalog: Catalog) -> bytes:
    """Return the file of a catalog. Its messages are in the order of the files that have them."""
    file = BytesIO()
    write_po(file, catalog, width=120, no_location=True)
    # Another Babel writes the same file, and nobody gets an address by default.
    return re.sub(rb'"(Generated-By|Report-Msgid-Bugs-To|Last-Translator|Language-Team): .*\n', b"", file.getvalue())


def as_mo(catalog: Catalog) -> bytes:
    """Return the compiled file, which Django reads."""
    file = BytesIO()
    write_mo(file, catalog)
    return file.getvalue()


def write(language: str, catalog: Catalog) -> None:
    """Write both files of a language."""
    path = path_of(language)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(as_po(catalog))
    path.with_suffix(".mo").write_bytes(as_mo(catalog))
