"""The style sheets: directions are logical, and each colour is one of the project's own properties."""

import re

import pytest

from tests.admin.site.test_site import PACKAGE

SHEETS = sorted((PACKAGE / "static" / "django_delayq").glob("*.css"))
_PHYSICAL = re.compile(
    r"(?<![-\w])(?:(?:margin|padding|border|inset)-(?:left|right|top|bottom)(?:-[a-z]+)?|(?:min-|max-)?(?:width|height)"
    r"|left|right|top|bottom)\s*:|(?:text-align|float|clear)\s*:\s*(?:left|right)"
)
_COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}\b(?=[^{]*[;}])|\brgba?\(|\bhsla?\(")


def rules(name: str) -> str:
    """Return a sheet without comments and without the conditions of media queries."""
    text = next(each for each in SHEETS if each.name == name).read_text()
    return re.sub(r"/\*.*?\*/|@media[^{]*", "", text, flags=re.DOTALL)


@pytest.mark.parametrize("name", [each.name for each in SHEETS])
def test_directions_are_logical(name: str) -> None:
    # A rule for one direction may name sides: the start of a text with a direction of its own is another one.
    of_both = re.sub(r"^\[dir=[^{]*\{[^}]*\}", "", rules(name), flags=re.MULTILINE)
    assert _PHYSICAL.findall(of_both) == []


@pytest.mark.parametrize("name", ["delayq.css", "tables.css"])
def test_colours_are_tokens(name: str) -> None:
    assert {each for each in re.findall(r"var\((--[a-z-]+)", rules(name)) if not each.startswith("--delayq-")} == set()
    bodies = re.findall(r"\{([^{}]*)\}", rules(name))
    assert [each for each in bodies if _COLOUR.search(each)] == []


def test_each_token_has_a_fallback() -> None:
    assert re.findall(r"var\((--[a-z-]+)\)", rules("tokens.css")) == []
