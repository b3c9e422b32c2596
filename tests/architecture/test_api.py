"""The API pages are complete: they name every public name, and what they show has a docstring."""

import inspect
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
from django.dispatch import Signal
from django.utils.module_loading import import_string

import django_delayq
from django_delayq import exceptions, middleware, signals, testing
from django_delayq.exceptions import DelayQError

FOLDER = Path(__file__).parents[2] / "docs" / "reference" / "api"
PAGES = {path.name: path.read_text() for path in FOLDER.glob("*.md")}
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


def test_the_pages_name_every_public_name() -> None:
    public = {f"django_delayq.{name}" for name in django_delayq.__all__}
    public |= {f"django_delayq.testing.{name}" for name in testing.__all__}
    public |= {f"django_delayq.middleware.{name}" for name in middleware.__all__} | {
        "django_delayq.backend.DelayQBackend"
    }
    public |= {f"django_delayq.signals.{name}" for name, each in vars(signals).items() if isinstance(each, Signal)}
    assert {path for path in public - set(DOCUMENTED) if not path.startswith("django_delayq.signals._")} == set()


def test_the_page_of_exceptions_leaves_out_only_what_another_page_has() -> None:
    [left_out] = re.findall(r":exclude-members: (.*)", PAGES["exceptions.md"])
    assert {f"django_delayq.{name}" for name in left_out.split(", ")} <= set(DOCUMENTED)
    assert "automodule:: django_delayq.exceptions\n   :members:" in PAGES["exceptions.md"]
    errors = [each for each in vars(exceptions).values() if isinstance(each, type) and issubclass(each, DelayQError)]
    assert len(errors) > 30 and all(each.__doc__ for each in errors)


@pytest.mark.parametrize("path", DOCUMENTED)
def test_what_the_pages_show_has_a_docstring(path: str) -> None:
    shown = import_string(path)
    if isinstance(shown, Signal):
        assert has_comment(inspect.getsource(signals), path.rpartition(".")[2])
    else:
        assert shown.__doc__ and not shown.__doc__.startswith(f"{shown.__name__}(")


@pytest.mark.parametrize("path", CLASSES)
def test_what_a_class_shows_has_a_docstring(path: str) -> None:
    assert undocumented(import_string(path), DOCUMENTED[path]) == []


def undocumented(shown: Any, options: str) -> list[str]:
    """Return the public members of a class that its page would leave out, because nothing describes them."""
    hidden = set(re.findall(r"\w+", "".join(re.findall(r":exclude-members: (.*)", options))))
    chosen = set(re.findall(r"\w+", "".join(re.findall(r" :members: (.+)", options))))
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

    assert undocumented(Shown, "") == ["silent", "quiet"]
    assert undocumented(Shown, "   :exclude-members: quiet\n") == ["silent"]
