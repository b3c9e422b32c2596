"""Bring the translations up to date, and list what each language misses: `python -m tests.admin.languages`.

With `--list` it writes nothing.
"""

import sys

from tests.admin.languages.catalogs import LANGUAGES, path_of, untranslated, updated, write


def main(*, writes: bool) -> int:
    """Return 1 if any language misses a text."""
    missing = 0
    for language in LANGUAGES:
        catalog = updated(language)
        if writes:
            write(language, catalog)
        texts = untranslated(catalog)
        missing += len(texts)
        print(f"{path_of(language)}: {len(texts) or 'nothing'} missing")
        for each in texts:
            print(f"  {each.context}: {each.id}" if each.context else f"  {each.id}")
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main(writes="--list" not in sys.argv[1:]))
