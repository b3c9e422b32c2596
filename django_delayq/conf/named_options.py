"""Named options: a setting that is a dict of names, such as those of queues, to dicts of options."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from django_delayq.conf.spelling import did_you_mean
from django_delayq.conf.validators import MAX_NAME, Validator, check_name

T = TypeVar("T")


class NamedOptions(dict[str, T]):
    """The options of each declared name. Nobody changes it, so it can be a part of a frozen `Config`."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self))


def named_options(names: str, known: Sequence[str], read: Callable[[str, str, Mapping[str, Any]], Any]) -> Validator:
    """Return the check of a setting. `names` is what it names, such as "queue names".

    `read(name, label, options)` makes one entry, and raises ValueError: `label` is the name as errors show it; all
    options are `known`.
    """

    def read_all(value: Any) -> NamedOptions[Any]:
        if not isinstance(value, Mapping):
            raise ValueError("it is no dict")
        return NamedOptions(
            (
                check_name(name, name=f"the name {name!r:.80}"),
                read(name, f"{name!r:.80}", _check(f"{name!r:.80}", options, known)),
            )
            for name, options in value.items()
        )

    listed = f"{', '.join(known[:-1])} and {known[-1]}"
    return Validator(
        f"a dict of {names}, 1 to {MAX_NAME} bytes of text, to dicts of the options {listed}",
        lambda value: read_all(value) is not None,
        read_all,
        shows_reason=True,
    )


def is_whole_number(value: Any, most: int) -> bool:
    """Return whether a value is a whole number from 1 to `most`."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _check(label: str, options: Any, known: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(options, Mapping):
        raise ValueError(f"{label} must be a dict of {', '.join(known)}, got {type(options).__name__}")
    for option in options:
        if option not in known:
            raise ValueError(f"{label} has the unknown key {option!r:.80}{did_you_mean(option, known)}")
    return options
