"""Limit rules: what DELAYQ['LIMITS'] says of each declared limit."""

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django_delayq.clock import SECOND_US
from django_delayq.conf.named_options import NamedOptions, NamedOptionsValidator, is_whole_number

#: The units of rates, in µs.
UNITS = {"s": SECOND_US, "m": 60 * SECOND_US, "h": 3_600 * SECOND_US, "d": 86_400 * SECOND_US}
_RATE = re.compile(r"(?P<count>[1-9][0-9]{0,8})/(?P<unit>[smhd])")
#: Redis stores moments as floats with steps of 0.25 µs: 0.25 % of the interval at this rate.
MAX_PER_SECOND = 10_000
MAX_BURST = 1_000_000
#: The default burst is the jobs of this time, so that a worker that claims a little late does not lower the rate.
_DEFAULT_BURST_US = SECOND_US // 10
_MAX_RUNNING = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRule:
    """One limit, shared by all workers. A limit with values, such as one for each account, applies to each value."""

    #: Time between two starts in µs, if they come evenly; None: any number may start.
    interval_us: float | None = None
    #: How many may start at once after idle time.
    burst: int = 1
    #: How many jobs may run at the same time; None: any number.
    max_running: int | None = None

    def pack(self) -> bytes:
        """Return the form that `_limits.lua` reads."""
        return struct.pack(">dII", self.interval_us or 0.0, self.burst, self.max_running or 0)


#: The rule of each declared limit.
Limits = NamedOptions[LimitRule]
NO_LIMITS = Limits()


def _read(_name: str, label: str, options: Mapping[str, Any]) -> LimitRule:
    rate, burst, most = options.get("rate"), options.get("burst"), options.get("max_running")
    if rate is None and most is None:
        raise ValueError(f"{label} limits nothing: give it a rate, such as '100/s', or max_running")
    if burst is not None and rate is None:
        raise ValueError(f"{label} has a burst, which only a rate uses: add a rate, or leave burst out")
    for name, value, largest in (("burst", burst, MAX_BURST), ("max_running", most, _MAX_RUNNING)):
        if value is not None and not is_whole_number(value, largest):
            raise ValueError(f"{label}[{name!r}] must be a whole number, 1 to {largest:,}, got {value!r:.80}")
    interval_us = None if rate is None else _interval_us(f"{label}['rate']", rate)
    if burst is None:
        # Rounded first: a quotient that is whole may be stored as a little less.
        burst = max(1, int(round(_DEFAULT_BURST_US / interval_us, 6))) if interval_us else 1
    return LimitRule(interval_us=interval_us, burst=burst, max_running=most)


def _interval_us(label: str, rate: Any) -> float:
    found = _RATE.fullmatch(rate) if isinstance(rate, str) else None
    if not found:
        raise ValueError(
            f"{label} must be text such as '100/s', '50/m', '20/h' or '10/d': a whole number of starts a second, "
            f"minute, hour or day; got {rate!r:.80}"
        )
    interval_us = UNITS[found["unit"]] / int(found["count"])
    if interval_us < SECOND_US / MAX_PER_SECOND:
        raise ValueError(f"{label} must be at most {MAX_PER_SECOND:,}/s, got {rate!r:.80}")
    return interval_us


#: The check of the whole setting.
LIMITS = NamedOptionsValidator("names of limits", ("rate", "burst", "max_running"), _read)
