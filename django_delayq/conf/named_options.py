"""Named options: a setting that is a dict of names, such as those of queues, to dicts of options."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django_delayq.conf.spelling import did_you_mean
from django_delayq.conf.validators import MAX_NAME, check_name

T = TypeVar("T")


class NamedOptions(dict[str, T]):
    """The options of each declared name. Nobody changes it, so it can be a part of a frozen `Config`."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self))


@dataclass(frozen=True, slots=True)
class NamedOptionsValidator:
    """The check of a setting that is a dict of names to options."""

    #: What it names, such as "queue names", and all options.
    names: str
    known: Sequence[str]
    #: `read(name, label, options)` makes one entry, and raises ValueError; `label` is the entry as errors show it.
    read: Callable[[str, str, Mapping[str, Any]], Any]

    @property
    def accepts(self) -> str:
        """Legal values, as errors and docs/reference/settings.md describe them."""
        listed = f"{', '.join(self.known[:-1])} and {self.known[-1]}"
        return f"a dict of {self.names}, 1 to {MAX_NAME} bytes of text, to dicts of the options {listed}"

    def __call__(self, setting: str, value: Any) -> NamedOptions[Any]:
        """Return what Config keeps of a legal value."""
        if not isinstance(value, Mapping):
            raise ValueError(f"{setting} must be {self.accepts}, got {type(value).__name__}")
        return NamedOptions(
            (check_name(name, name=f"the name {name!r:.80} in {setting}"), self._entry(setting, name, options))
            for name, options in value.items()
        )

    def _entry(self, setting: str, name: str, options: Any) -> Any:
        label = f"{setting}[{name!r:.80}]"
        return self.read(name, label, _check(label, options, self.known))


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
