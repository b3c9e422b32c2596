"""The suite's project behind a real server, under a strict Content-Security-Policy, with ann logged in."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import django
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.core.management import call_command
from django.http import HttpRequest, HttpResponse
from django.test.utils import override_settings
from pytest_django.live_server_helper import LiveServer

if django.VERSION >= (6, 0):
    from django.utils.csp import CSP

#: Since Django 6.1 the admin's own tags have the nonce; before, the policy must allow its files by their origin.
BY_NONCE = django.VERSION >= (6, 1)
_POLICY = {
    "default-src": ["'none'"],
    "script-src": ["'self'"],
    "style-src": ["'self'"],
    "img-src": ["'self'"],
    "connect-src": ["'self'"],
    "form-action": ["'self'"],
    "base-uri": ["'none'"],
}


def policed(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware that sends the policy, for Django releases without one."""

    def respond(request: HttpRequest) -> HttpResponse:
        response = get_response(request)
        policy = "; ".join(f"{name} {' '.join(sources)}" for name, sources in _POLICY.items())
        response["Content-Security-Policy"] = policy
        return response

    return respond


def _strict() -> dict[str, Any]:
    """Return the settings for Django's own policy middleware."""
    if not BY_NONCE:
        return {"MIDDLEWARE": [f"{__name__}.policed", *settings.MIDDLEWARE]}
    (engine,) = settings.TEMPLATES
    processors = [*engine["OPTIONS"]["context_processors"], "django.template.context_processors.csp"]
    return {
        "MIDDLEWARE": ["django.middleware.csp.ContentSecurityPolicyMiddleware", *settings.MIDDLEWARE],
        "TEMPLATES": [{**engine, "OPTIONS": {**engine["OPTIONS"], "context_processors": processors}}],
        "SECURE_CSP": {**_POLICY, "script-src": [CSP.NONCE], "style-src": [CSP.NONCE]},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The address of the pages, and the session of the logged-in user."""

    url: str
    session: str

    @property
    def cookie(self) -> Any:
        """The session's cookie in Playwright's format."""
        return {"name": settings.SESSION_COOKIE_NAME, "value": self.session, "url": self.url}


@contextmanager
def served(redis_url: str, *, strict: bool = True) -> Iterator[Site]:
    """Serve the project with its static files and a database in memory; ann, a superuser, is logged in.

    `strict`: under the policy, which most themes of the admin do not stand.
    """
    # The database has no tables yet if no earlier test needed one; else this changes nothing.
    call_command("migrate", verbosity=0)
    ann, session = User.objects.create_superuser("ann"), SessionStore()
    session[SESSION_KEY] = str(ann.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = ann.get_session_auth_hash()
    session.create()
    with override_settings(DELAYQ={"REDIS": redis_url}, ALLOWED_HOSTS=["127.0.0.1"], **(_strict() if strict else {})):
        server = LiveServer("127.0.0.1")
        try:
            yield Site(url=server.url, session=str(session.session_key))
        finally:
            server.stop()
    session.delete()
    # With all that ann did.
    ann.delete()
