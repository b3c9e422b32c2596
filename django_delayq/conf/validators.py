"""Validators: what the value of a setting may be, and what Config keeps of it.

A validator is called with the name of the setting and its value. It raises ValueError, which names the setting.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from django_delayq.clock import DAY_US, SECOND_US, duration_us
from django_delayq.conf.spelling import did_you_mean
from django_delayq.job.retry import RetryPolicy

#: Longest queue name or key, in bytes of UTF-8.
MAX_NAME = 200
#: Fewest characters of a secret of the project's own.
_SHORTEST_SECRET = 32


def setting(
    default: Any, validate: Callable[[str, Any], Any], help: str, *, option: bool = False, secret: bool = False
) -> Any:
    """Return a dataclass field that a setting of the same name fills: `LEASE` fills `lease_us`.

    `help` is Markdown for docs/reference/settings.md. With `option`, a command-line option of that name replaces the
    setting. The `repr()` of Config leaves out what is `secret`.
    """
    return field(default=default, repr=not secret, metadata={"validate": validate, "help": help, "option": option})


def settings_of(part: type[Any]) -> dict[str, Field[Any]]:
    """Return the fields of a dataclass that settings fill, by the name of the setting."""
    return {each.name.removesuffix("_us").upper(): each for each in fields(part) if "validate" in each.metadata}


@dataclass(frozen=True, slots=True)
class Validator:
    """The check and the conversion of one kind of value."""

    #: Legal values, as errors and docs/reference/settings.md describe them.
    accepts: str
    #: Returns a true value for a legal value; may raise ValueError, TypeError or re.error for another.
    allows: Callable[[Any], object]
    convert: Callable[[Any], Any] = lambda value: value
    #: Show text in errors. Text for a setting that takes none may be a secret.
    shows_text: bool = False
    #: Show in errors what `allows` raised: it names the faulty part of a value.
    shows_reason: bool = False

    def __call__(self, name: str, value: Any) -> Any:
        """Return what Config keeps of a legal value."""
        reason = ""
        try:
            if self.allows(value):
                return self.convert(value)
        except (ValueError, TypeError, re.error) as error:
            reason = f" ({error})" if self.shows_reason else ""
        shown = value is None or isinstance(value, (int, float, timedelta, *([str] if self.shows_text else [])))
        got = f"{value!r:.80}" if shown else type(value).__name__
        raise ValueError(f"{name} must be {self.accepts}{reason}, got {got}")


@dataclass(frozen=True, slots=True)
class ListOf:
    """The check of a list; errors name the first wrong entry by its index. Config keeps a tuple."""

    #: Legal values, as errors and docs/reference/settings.md describe them.
    accepts: str
    #: Returns what is wrong with an entry, or None; never its text, which may be a secret.
    wrong: Callable[[Any], str | None]
    #: Refuse an entry that is there twice, and show it.
    is_unique: bool = False

    def __call__(self, name: str, value: Any) -> Any:
        """Return what Config keeps of a legal value."""
        if not isinstance(value, list | tuple):
            raise ValueError(f"{name} must be {self.accepts}, got {type(value).__name__}")
        for at, each in enumerate(value):
            if wrong := self.wrong(each):
                raise ValueError(f"{name} must be {self.accepts}, but {name}[{at}] {wrong}")
            if self.is_unique and each in value[:at]:
                raise ValueError(f"{name}[{at}] is {each!r:.200} again, as {name}[{value.index(each)}]; take one out")
        return tuple(value)


def duration(*, minimum_us: int = 0, maximum_us: int = 3_650 * DAY_US, unit_us: int = 1) -> Validator:
    """Return a validator of durations within bounds; Config keeps a number of `unit_us`."""
    bounds = f"{f'at least {duration_text(minimum_us)}, ' if minimum_us else ''}at most {duration_text(maximum_us)}"
    return Validator(
        f"a number of seconds or a timedelta, {bounds}",
        lambda value: minimum_us <= duration_us(value) <= maximum_us,
        lambda value: duration_us(value) if unit_us == 1 else duration_us(value) / unit_us,
    )


def duration_text(us: int) -> str:
    """Return a duration for people: "30 s", "1 hour", "3,650 days"."""
    for unit, unit_us in (("day", DAY_US), ("hour", 3_600 * SECOND_US)):
        if us and us % unit_us == 0:
            return f"{us // unit_us:,} {unit}{'s' if us > unit_us else ''}"
    return f"{us / SECOND_US:g} s"


def integer(minimum: int, maximum: int, *, of: str = "") -> Validator:
    """Return a validator of whole numbers within bounds; `of` names what they count."""
    return Validator(
        f"a whole number{of and ' of '}{of}, {minimum:,} to {maximum:,}",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum,
    )


def dict_of(part: type[Any]) -> Callable[[str, Any], Any]:
    """Return a validator of dicts whose keys are the settings of a dataclass; Config keeps an instance of it."""
    known = settings_of(part)

    def read(name: str, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise ValueError(f"{name} must be a dict of {', '.join(known)}, got {type(value).__name__}")
        kept = {}
        for key, each in value.items():
            if key not in known:
                raise ValueError(f"{name} has the unknown key {key!r:.80}{did_you_mean(key, known)}")
            kept[known[key].name] = known[key].metadata["validate"](f"{name}[{key!r}]", each)
        return part(**kept)

    return read


def check_name(value: Any, *, name: str) -> str:
    """Return a queue's name or a key if it is text of 1 to 200 bytes. Raises ValueError naming the argument."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, got {type(value).__name__}")
    size = len(value.encode("utf-8", "surrogatepass"))
    if not 1 <= size <= MAX_NAME:
        raise ValueError(f"{name} must be 1 to {MAX_NAME} bytes of text, got {size}")
    return value


def label(name: str, value: Any) -> str:
    """Return a text of at most 200 bytes, or an empty one. Raises ValueError."""
    return "" if value == "" else check_name(value, name=name)


def encryption(name: str, value: Any) -> bool:
    """Return the value of ENCRYPT. Raises ValueError if it is on and the package that encrypts is missing."""
    if boolean(name, value) and find_spec("cryptography") is None:
        raise ValueError(f"{name} needs the package cryptography: pip install 'django-delayq[encrypt]'")
    return bool(value)


def _wrong_text(value: Any) -> str | None:
    return None if isinstance(value, str) else f"is of the type {type(value).__name__}"


def _wrong_class(value: Any) -> str | None:
    return _wrong_text(value) or (None if "." in value else "has no dot")


def _wrong_secret(value: Any) -> str | None:
    return _wrong_text(value) or (None if len(value) >= _SHORTEST_SECRET else f"has {len(value)}")


boolean = Validator("True or False", lambda value: isinstance(value, bool))
retry = Validator("a django_delayq.RetryPolicy", lambda value: isinstance(value, RetryPolicy))
prefix = Validator(
    f"printable text of 1 to {MAX_NAME} bytes without braces, wildcards or spaces",
    lambda value: check_name(value, name="") and value.isprintable() and not set(value) & set("{}*?[]\\ "),
    shows_text=True,
)
modules = ListOf("a list of dotted module paths", _wrong_text)
secrets = ListOf(f"a list of texts of at least {_SHORTEST_SECRET} characters", _wrong_secret)
classes = ListOf("a list of dotted paths of classes, each once", _wrong_class, is_unique=True)
permission = Validator(
    "'app_label.codename' or a dotted path to f(request) -> bool",
    lambda value: re.fullmatch(r"[^\s.]+(\.[^\s.]+)+", value),
    shows_text=True,
)
pattern = Validator(
    "a regular expression",
    lambda value: isinstance(value, str) and value and re.compile(value),
    lambda value: re.compile(value, re.IGNORECASE),
    shows_text=True,
    shows_reason=True,
)
