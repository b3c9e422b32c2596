"""Zones: the time zones of cron rules."""

from datetime import UTC
from difflib import get_close_matches
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from django_delayq.exceptions import InvalidSchedule


def zone_of(tz: Any) -> ZoneInfo:
    """Return a time zone by its name or as a ZoneInfo. Raises `InvalidSchedule`."""
    if tz is UTC:
        tz = "UTC"
    if isinstance(tz, ZoneInfo) and tz.key is not None:
        # Its key is stored: other processes look it up.
        tz = tz.key
    if not isinstance(tz, str):
        raise InvalidSchedule(f"tz must be the name of a time zone such as 'Europe/Berlin', got {tz!r:.80}")
    try:
        return ZoneInfo(tz)
    except (LookupError, ValueError, OSError):
        close = get_close_matches(tz, available_timezones(), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "; the package tzdata has all of them"
        raise InvalidSchedule(f"tz={tz!r:.80} is no time zone that this machine knows{hint}") from None
