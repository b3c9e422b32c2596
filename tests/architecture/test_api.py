"""The API pages are complete: they name every public name, and what they show has a docstring.

They show no internals: what is public is what the other pages describe.
"""

import inspect
import re
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.dispatch import Signal
from django.utils.module_loading import import_string

import django_delayq
from django_delayq import exceptions, middleware, signals, testing
from django_delayq.exceptions import DelayQError

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference" / "api"
PAGES = {path.name: path.read_text() for path in FOLDER.glob("*.md")}
#: Errors and functions beside them that no caller gets: a worker and the store catch the errors.
INTERNAL = {"StaleExchange", "OtherLayout", "address_of", "see"}
#: Members that the API pages alone describe, since each explains itself there.
BESIDES = {"retryable", "most", "indexes", "maybe_sent"}
_DIRECTIVE = re.compile(
    r"^\.\. auto(?:class|function|exception|decorator|data):: ([\w.]+)(?:\(\))?$\n((?:^ {3}.*$\n)*)", re.M
)


def documented() -> dict[str, str]:
    """Return the dotted path of each name that the pages show -> the options of its directive."""
    found: dict[str, str] = {}
    for text in PAGES.values():
        # A name without a module belongs to the last `currentmodule` before it.
        for part in re.split(r"(?=^\.\. currentmodule::)", text, flags=re.MULTILINE):
            module = re.match(r"\.\. currentmodule:: (\S+)", part)
            for name, options in _DIRECTIVE.findall(part):
                local = module and not name.startswith("django_delayq.")
                found[f"{module[1]}.{name}" if module and local else name] = options
    return found


DOCUMENTED = documented()
CLASSES = [path for path in DOCUMENTED if inspect.isclass(import_string(path))]
[HIDDEN] = re.findall(r":exclude-members: (.*)", PAGES["exceptions.md"])
ERRORS = {
    f"django_delayq.exceptions.{name}": f"   :members:\n   :exclude-members: {HIDDEN}\n"
    for name, each in vars(exceptions).items()
    if isinstance(each, type) and issubclass(each, DelayQError) and name not in HIDDEN.split(", ")
}


def test_the_pages_name_every_public_name() -> None:
    public = {f"django_delayq.{name}" for name in django_delayq.__all__}
    public |= {f"django_delayq.testing.{name}" for name in testing.__all__}
    public |= {f"django_delayq.middleware.{name}" for name in middleware.__all__} | {
        "django_delayq.backend.DelayQBackend"
    }
    public |= {"django_delayq.admin.register", "django_delayq.admin.audit_log.admin_action"}
    public |= {f"django_delayq.signals.{name}" for name, each in vars(signals).items() if isinstance(each, Signal)}
    assert {path for path in public - set(DOCUMENTED) if not path.startswith("django_delayq.signals._")} == set()


def test_the_page_of_exceptions_leaves_out_only_internals_and_what_another_page_has() -> None:
    left_out = {name for name in HIDDEN.split(", ") if hasattr(exceptions, name)}
    assert left_out >= INTERNAL
    assert {f"django_delayq.{name}" for name in left_out - INTERNAL} <= set(DOCUMENTED)
    functions = {name for name, each in vars(exceptions).items() if inspect.isfunction(each)}
    assert functions <= left_out
    assert "automodule:: django_delayq.exceptions\n   :members:" in PAGES["exceptions.md"]
    errors = [each for each in vars(exceptions).values() if isinstance(each, type) and issubclass(each, DelayQError)]
    assert len(errors) > 30 and all(each.__doc__ for each in errors)


@pytest.mark.parametrize("path", DOCUMENTED)
def test_what_the_pages_show_has_a_docstring(path: str) -> None:
    shown = import_string(path)
    if isinstance(shown, Signal):
        module, _, name = path.rpartition(".")
        assert has_comment(inspect.getsource(import_module(module)), name)
    else:
        assert shown.__doc__ and not shown.__doc__.startswith(f"{shown.__name__}(")


@pytest.mark.parametrize("path", CLASSES)
def test_what_a_class_shows_has_a_docstring(path: str) -> None:
    assert undocumented(import_string(path), DOCUMENTED[path]) == []


@pytest.mark.parametrize("path", [*CLASSES, *ERRORS])
def test_the_pages_for_users_name_what_a_class_shows(path: str) -> None:
    options = ERRORS.get(path) or DOCUMENTED[path]
    assert members(import_string(path), options) - words_for_users() - BESIDES == set()


@cache
def words_for_users() -> frozenset[str]:
    """Return the words in code of the pages that users read, without the API pages."""
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md")]
    pages += [page for page in ROOT.glob("docs/*/*.md") if page.parent.name not in ("internals", "reference")]
    code = (part for page in pages for part in re.findall(r"```.*?```|`[^`\n]+`", page.read_text(), re.DOTALL))
    return frozenset(word for part in code for word in re.findall(r"\w+", part))


def members(shown: Any, options: str) -> set[str]:
    """Return the names of the members that the page of a class shows."""
    hidden, chosen = option_names("exclude-members", options), option_names("members", options)
    # With this option autodoc shows all members, whatever `members` chooses.
    assert ":inherited-members:" not in options
    if chosen or ":members:" not in options:
        return chosen
    attributes = re.findall(r"#:[^\n]*\n(?: *#[^\n]*\n)* *(?:self\.)?(\w+)", inspect.getsource(shown))
    functions = [
        name for name, each in vars(shown).items() if not isinstance(each, type) and getattr(each, "__doc__", None)
    ]
    return {name for name in [*functions, *attributes] if not name.startswith("_")} - hidden


def option_names(option: str, options: str) -> set[str]:
    """Return the names that an option of a directive lists."""
    return set(re.findall(r"\w+", "".join(re.findall(rf" :{option}: (.+)", options))))


def undocumented(shown: Any, options: str) -> list[str]:
    """Return the public members of a class that its page would leave out, because nothing describes them."""
    hidden, chosen = option_names("exclude-members", options), option_names("members", options)
    if ":members:" not in options:
        return []
    source = inspect.getsource(shown)
    missing = []
    for name, member in vars(shown).items():
        if name.startswith("_") or name in hidden or (chosen and name not in chosen):
            continue
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if inspect.isfunction(function) and not function.__doc__:
            missing.append(name)
    attributes = [each.name for each in fields(shown)] if is_dataclass(shown) else getattr(shown, "_fields", [])
    shown_ones = {name for name in attributes if not name.startswith("_") and not chosen} - hidden
    assert all(hasattr(shown, name) for name in chosen)
    return missing + sorted(name for name in shown_ones if not has_comment(source, name))


def has_comment(source: str, name: str) -> bool:
    """Whether a `#:` comment before or behind an attribute, or one of its group, describes it."""
    return re.search(rf"#:[^\n]*\n(?: *[\w\"#:][^\n]*\n)*? *{name}\b *[:=]", source) is not None


def test_members_without_a_docstring_are_found() -> None:
    class Shown:
        """A class."""

        def silent(self) -> None: ...

        @property
        def quiet(self) -> int:
            return 1

        def clear(self) -> None:
            """Clear."""

    assert undocumented(Shown, "   :members:\n") == ["silent", "quiet"]
    assert undocumented(Shown, "   :members:\n   :exclude-members: quiet\n") == ["silent"]
    assert undocumented(Shown, "") == []
    assert members(Shown, "   :members:\n") == {"clear"}
    assert members(Shown, "   :members: quiet\n") == {"quiet"}
