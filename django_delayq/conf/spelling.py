"""Spelling: known words in errors about unknown ones."""

import difflib
from collections.abc import Iterable, Sequence


def did_you_mean(word: object, known: Iterable[object]) -> str:
    """Return " (did you mean 'LEASE'?)" with the known name closest to `word`, or nothing. Case does not count."""
    names = {str(name).casefold(): str(name) for name in known}
    close = difflib.get_close_matches(str(word).casefold(), names, n=1)
    return f" (did you mean {names[close[0]]!r}?)" if close else ""


def one_of(words: Sequence[str]) -> str:
    """Return "'keep', 'reject' or 'replace'" for those words; there are at least two."""
    *others, last = map(repr, words)
    return f"{', '.join(others)} or {last}"
