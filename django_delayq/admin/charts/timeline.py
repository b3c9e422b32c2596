"""Timeline of one job: when it waited and when it ran, as a bar of time in SVG with a table of the same times."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from django_delayq.admin.charts.drawing import WIDTH
from django_delayq.job.ending import Ending
from django_delayq.job.ids import created_us
from django_delayq.job.job import State
from django_delayq.store.queries.job_pages import JobRow
from django_delayq.templatetags.delayq import duration_text

#: The narrowest part: a run of 10 ms stays visible after a wait of ten days.
_NARROWEST = 8
#: CSS class of a part -> its name.
_KINDS = {
    "scheduled": gettext_lazy("scheduled"),
    "ready": gettext_lazy("ready, waits for a worker"),
    "running": pgettext_lazy("of a job", "runs"),
    "done": gettext_lazy("ran"),
    "failed": gettext_lazy("failed attempt"),
    "cancelled": gettext_lazy("stopped"),
}


class Part(NamedTuple):
    """A time in which a job waited or ran."""

    #: A key of `_KINDS`.
    kind: str
    begin_us: int
    #: None: nobody saw the end.
    end_us: int | None
    #: Number of the attempt, if it ran.
    attempt: int | None = None

    @property
    def took_us(self) -> int:
        """Its length, at least 0."""
        return max(0, (self.end_us or self.begin_us) - self.begin_us)

    @property
    def name(self) -> str:
        """What it is, for people."""
        name = str(_KINDS[self.kind])
        return name if self.attempt is None else _("%(number)s: %(name)s") % {"number": self.attempt, "name": name}


class Box(NamedTuple):
    """A part as it is drawn."""

    kind: str
    x: int
    width: int
    label: str


@dataclass(frozen=True)
class Timeline:
    """The parts of a job's life, in their order."""

    parts: Sequence[Part]

    @cached_property
    def boxes(self) -> list[Box]:
        """The parts side by side; together they fill the bar."""
        free, length = WIDTH - _NARROWEST * len(self.parts), sum(part.took_us for part in self.parts)
        found, before_us = [], 0
        for at, part in enumerate(self.parts):
            left = _NARROWEST * at + before_us * free // max(1, length)
            before_us += part.took_us
            right = _NARROWEST * (at + 1) + before_us * free // max(1, length)
            found.append(Box(part.kind, left, right - left, f"{part.name}: {duration_text(part.took_us)}"))
        return found

    @property
    def legend(self) -> list[tuple[str, Any]]:
        """The kinds that it has, with their names."""
        return [(kind, name) for kind, name in _KINDS.items() if any(part.kind == kind for part in self.parts)]

    @property
    def summary(self) -> str:
        """What it shows, in a sentence."""
        ran_us = sum(part.took_us for part in self.parts if part.attempt is not None)
        waited_us = sum(part.took_us for part in self.parts if part.attempt is None)
        return _("Waits: %(waited)s in all. Runs: %(ran)s.") % {
            "waited": duration_text(waited_us),
            "ran": duration_text(ran_us),
        }


def of_job(row: JobRow, now_us: int) -> Timeline | None:
    """Return the timeline of a job that has not ended, or is a dead letter; None if nothing is known of it."""
    attempts = row.attempts
    first = max(0, attempts.ended - len(attempts.history)) + 1
    runs = [
        (entry.get("due_us"), started_us, entry.get("ended_us"), number)
        for number, entry in enumerate(attempts.history, first)
        if (started_us := entry.get("started_us"))
    ]
    parts = list(_past(created_us(row.raw_id), runs, "failed"))
    at_us = _end(parts) or created_us(row.raw_id)
    if row.state is not State.DEAD:
        begun_us = row.claimed_us if row.state is State.CLAIMED else None
        parts += _waits(at_us, row.moment_us, begun_us or max(at_us, now_us))
        if begun_us:
            parts.append(Part("running", begun_us, max(begun_us, now_us), attempts.ended + 1))
    return Timeline(parts) if parts else None


def of_ending(ending: Ending) -> Timeline | None:
    """Return the timeline of a job that is gone; None if it did not run. Earlier attempts count as waits."""
    if ending.started_us is None or ending.lag_us is None:
        return None
    run = (ending.started_us - ending.lag_us, ending.started_us, ending.ended_us, ending.attempt)
    kind = {State.DONE: "done", State.CANCELLED: "cancelled"}.get(ending.state, "failed")
    return Timeline(list(_past(created_us(ending.raw_id), [run], kind)))


def _past(at_us: int, runs: Iterable[tuple[int | None, int, int | None, int]], kind: str) -> Iterator[Part]:
    """Yield the waits and runs since `at_us`; a run has its due time, start, end and number."""
    for due_us, started_us, ended_us, number in runs:
        yield from _waits(at_us, due_us or at_us, started_us)
        yield Part(kind, started_us, ended_us, number)
        at_us = max(at_us, started_us, ended_us or 0)


def _waits(at_us: int, due_us: int, until_us: int) -> Iterator[Part]:
    """Yield the waits of a job from `at_us` to `until_us`, or to its due time if that is later."""
    # The clocks of two hosts differ, so times may be in another order.
    if due_us > at_us:
        yield Part("scheduled", at_us, due_us)
    if until_us > max(at_us, due_us):
        yield Part("ready", max(at_us, due_us), until_us)


def _end(parts: Sequence[Part]) -> int:
    return max((part.end_us or part.begin_us for part in parts), default=0)
