"""Template filters for time: durations in words, lateness in milliseconds."""

from datetime import datetime, timedelta

from django import template
from django.utils import timezone

register = template.Library()

STEPS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


@register.filter
def span(value: timedelta) -> str:
    """Format a duration in its two largest units: "2 h 5 min", "45 s"; below ten seconds with a tenth: "1.2 s"."""
    seconds = max(value.total_seconds(), 0)
    if seconds < 9.95:
        return f"{seconds:.1f} s".replace(".0", "")
    rest, words = round(seconds), []
    for unit, size in STEPS:
        count, rest = divmod(rest, size)
        if count:
            words.append(f"{count} {unit}")
    return " ".join(words[:2])


@register.filter
def until(moment: datetime) -> str:
    """Format the distance of a moment from now: "in 12 min", "5 s ago"."""
    distance = moment - timezone.now()
    if distance < timedelta(0):
        return f"{span(-distance)} ago" if distance < timedelta(seconds=-1) else "now"
    return f"in {span(distance)}"


@register.filter
def late(value: timedelta) -> str:
    """Format a lateness: "0.8 ms", "12.3 ms", "1.42 s"."""
    ms = value.total_seconds() * 1000
    if abs(ms) >= 1000:
        return f"{ms / 1000:.2f} s"
    return f"{ms:.1f} ms"


@register.filter
def since(moment: datetime, planned: datetime) -> str:
    """Format how much later than planned something happened."""
    return late(moment - planned)


@register.filter
def stamp(moment: datetime) -> str:
    """Format a moment for JavaScript's Date: milliseconds since 1970."""
    return str(int(moment.timestamp() * 1000))
