"""The page docs/reference/settings.md, from the fields of Config: `python -m tests.architecture.settings_page`."""

import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Any

from django_delayq.conf.config import AdminConfig, Config, DispatcherConfig, LeaseConfig, TaskConfig, WorkerConfig
from django_delayq.conf.validators import duration_text, settings_of
from django_delayq.job.retry import RetryPolicy

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
HEAD = """\
# Settings

`DELAYQ` in your settings is one dict. Only `REDIS` is required:

```python
DELAYQ = {"REDIS": "redis://localhost:6379/0", "CONCURRENCY": 16}
```

Durations are seconds or `timedelta`. `manage.py check` reports every mistake at once and never connects; an unknown key
is an error that names the nearest known one. An alias in `TASKS` may have
[settings of its own](../tasks/django-tasks.md).

<!-- Generated from django_delayq/conf/config.py by `make pages`; do not edit. -->
"""
SECTIONS = {
    "Connection and store": Config,
    "Enqueueing": TaskConfig,
    "Workers and dispatchers": LeaseConfig,
    "Workers": WorkerConfig,
    "Dispatchers": DispatcherConfig,
    "Django's admin": AdminConfig,
}
ADMIN = """\
These are keys of the dict `DELAYQ["ADMIN"]`. A permission is the name of one, or the dotted path of a function:
`"shop.staff.may_see_jobs"` is called with the request and decides alone. One dot makes a name, more dots a path.
"""


def default_text(field: Field[Any]) -> str:
    """Return the default of a setting as code, or in words if it is a duration or a size."""
    default = field.default
    if default is MISSING:
        return "none; required"
    if field.name.endswith("_us"):
        return duration_text(default)
    if isinstance(default, RetryPolicy):
        seconds = {name: f"{getattr(default, name).total_seconds():g}" for name in ("base", "cap")}
        return f"`RetryPolicy(max_attempts={default.max_attempts}, base={seconds['base']}, cap={seconds['cap']})`"
    if isinstance(default, int) and not isinstance(default, bool):
        unit = next((unit for unit in (20, 10) if "bytes" in accepts(field) and default % (1 << unit) == 0), 0)
        return f"{default >> unit:,}{ {20: ' MiB', 10: ' KiB', 0: ''}[unit] }"
    if isinstance(default, float):
        return f"{default:g} s"
    if isinstance(default, re.Pattern):
        default = default.pattern
    if isinstance(default, str):
        return f"`{json.dumps(default)}`"
    return "`{}`" if isinstance(default, frozenset | AdminConfig) else f"`{default!r}`"


def accepts(field: Field[Any]) -> str:
    """Return the legal values of a setting, or nothing if its help lists them."""
    return getattr(field.metadata["validate"], "accepts", "")


def lines() -> Iterator[str]:
    """Yield the paragraphs of the page."""
    yield HEAD
    for title, part in SECTIONS.items():
        yield f"## {title}\n"
        if part is AdminConfig:
            yield ADMIN
        for key, field in settings_of(part).items():
            if part is not LeaseConfig and key in settings_of(LeaseConfig):
                continue
            yield f"### `{key}`\n"
            yield textwrap.fill(field.metadata["help"], 120, break_long_words=False, break_on_hyphens=False) + "\n"
            yield f"- Default: {default_text(field)}"
            if accepts(field):
                yield f"- Value: {accepts(field)}"
            if field.metadata["option"]:
                yield f"- Option of `run_worker`: `--{key.lower().replace('_', '-')}`"
            yield ""


def page() -> str:
    """Return the page."""
    return "\n".join(lines()).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
