"""Middleware: the project's code around each enqueue and each run, and the classes that the package supplies.

The classes are off until `DELAYQ["MIDDLEWARE"]` lists them: `locale.LocaleMiddleware`,
`opentelemetry.OpenTelemetryMiddleware` and `sentry_crons.SentryCronsMiddleware`.
"""

from django_delayq.middleware.base import Middleware

__all__ = ["Middleware"]
