"""Locale: a middleware that carries the language and the time zone of the code that enqueues over to the task."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone, translation

from django_delayq.middleware.base import Middleware
from django_delayq.middleware.job import MiddlewareJob

#: The key of the context. Its value is a mapping of the other two.
_LOCALE, _LANGUAGE, _TIME_ZONE = "delayq.locale", "language", "time_zone"


class LocaleMiddleware(Middleware):
    """Run a job in the language and the time zone that were active when it was enqueued."""

    def around_enqueue(self, job: MiddlewareJob) -> AbstractContextManager[Any]:
        """Put both into the context."""
        zone = timezone.get_current_timezone()
        # A fixed offset has no name that could be looked up, so its minutes travel.
        name = getattr(zone, "key", None) or (zone.utcoffset(datetime.now(UTC)) or timedelta(0)) // timedelta(minutes=1)
        job.context[_LOCALE] = {_LANGUAGE: translation.get_language(), _TIME_ZONE: name}
        return nullcontext()

    @contextmanager
    def around_run(self, job: MiddlewareJob) -> Iterator[None]:
        """Activate both. A job that was enqueued without this middleware has the defaults of the project."""
        carried = job.context.get(_LOCALE)
        if not carried:
            yield
            return
        zone = carried[_TIME_ZONE]
        with (
            translation.override(carried[_LANGUAGE]),
            timezone.override(timezone.get_fixed_timezone(zone) if isinstance(zone, int) else zone),
        ):
            yield
