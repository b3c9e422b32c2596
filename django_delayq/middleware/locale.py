"""Locale: a middleware that carries the language and the time zone of the code that enqueues over to the task."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone, translation

from django_delayq.middleware.chain import Link, MiddlewareJob

#: Keys of the context.
_LANGUAGE, _TIME_ZONE = "language", "time_zone"


class LocaleMiddleware:
    """Run a job in the language and the time zone that were active when it was enqueued."""

    def __init__(self, next: Link) -> None:
        self.next = next

    def enqueue(self, job: MiddlewareJob) -> Any:
        """Put both into the context."""
        job.context |= _active()
        return self.next.enqueue(job)

    async def aenqueue(self, job: MiddlewareJob) -> Any:
        """Do what `enqueue()` does, from async code."""
        job.context |= _active()
        return await self.next.aenqueue(job)

    def run(self, job: MiddlewareJob) -> Any:
        """Activate both. A job that was enqueued without this middleware has the defaults of the project."""
        with _activated(job.context):
            return self.next.run(job)

    async def arun(self, job: MiddlewareJob) -> Any:
        """Do what `run()` does in an event loop."""
        with _activated(job.context):
            return await self.next.arun(job)


def _active() -> dict[str, Any]:
    zone = timezone.get_current_timezone()
    # A fixed offset has no name that could be looked up, so its minutes travel.
    name = getattr(zone, "key", None) or int((zone.utcoffset(datetime.now(UTC)) or timedelta(0)).total_seconds() // 60)
    return {_LANGUAGE: translation.get_language(), _TIME_ZONE: name}


@contextmanager
def _activated(context: dict[str, Any]) -> Iterator[None]:
    if _LANGUAGE not in context:
        yield
        return
    zone = context[_TIME_ZONE]
    with (
        translation.override(context[_LANGUAGE]),
        timezone.override(timezone.get_fixed_timezone(zone) if isinstance(zone, int) else zone),
    ):
        yield
