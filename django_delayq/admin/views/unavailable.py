"""Pages for two failures: Redis fails, and an address that takes only POST. They read nothing from Redis."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.http import HttpResponse, HttpResponseNotAllowed
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_delayq.admin.page import PageContext
from django_delayq.exceptions import ScriptFault, StoreAuthError, StoreError, StoreRejected, StoreUnavailable


class _Failure(NamedTuple):
    """What a page says of one kind of failure."""

    title: Any
    effect: Any
    #: What helps.
    hint: Any


_DOWN = _Failure(
    _("Redis does not answer"),
    _("Redis does not answer, so nothing can be shown or changed here."),
    _(
        'Check that the server runs, and that DELAYQ["REDIS"] names it. Redis keeps the jobs that it accepted, and '
        "they continue when it is back."
    ),
)
_SLOW = _Failure(
    _("Redis is too slow"),
    _("Redis does not answer in time, so nothing can be shown or changed here."),
    _("It may be busy, or out of reach. It keeps the jobs that it accepted, and they continue when it answers again."),
)
_FAILURES: dict[type[StoreError], _Failure] = {
    StoreAuthError: _Failure(
        _("Redis refused access"),
        _("Redis refused the password or a command, so nothing can be shown or changed here."),
        _(
            'Check the user and the password in DELAYQ["REDIS"]. manage.py delayq_acl prints what a user needs to be '
            "allowed."
        ),
    ),
    StoreRejected: _Failure(
        _("Redis takes no writes"),
        _("Redis answers, but takes no writes now."),
        _('The reason is below. If the server is a replica, DELAYQ["REDIS"] must name its primary.'),
    ),
    ScriptFault: _Failure(
        _("Redis holds something unexpected"),
        _("Redis answers, but what it holds is not what these pages expect."),
        _(
            'DELAYQ["REDIS"] or the prefix may name a database that something else uses, or somebody changed keys by '
            "hand. manage.py delayq_check says which."
        ),
    ),
}


def show_unavailable(page: PageContext, error: StoreError) -> HttpResponse:
    """Show the error with status 503."""
    failure = _FAILURES.get(type(error), _DOWN)
    if isinstance(error, StoreUnavailable) and error.slow:
        failure = _SLOW
    return page.render(
        "unavailable.html",
        tab="",
        title=failure.title,
        status=503,
        error=str(error),
        failure=failure,
        redis_url=page.store.config.redis.display_url,
        redis_down=True,
        retry_url=page.request.get_full_path() if page.request.method == "GET" else page.url("overview"),
    ).render()


def show_not_allowed(page: PageContext, methods: Sequence[str]) -> HttpResponse:
    """Return status 405, for a GET with a page that says that nothing was done.

    After a session ended, the login page leads to the address of an action by GET, and the posted form is lost.
    """
    refused = HttpResponseNotAllowed(methods)
    if page.request.method != "GET":
        return refused
    title = gettext("Nothing was done")
    response = page.render("not_allowed.html", tab="", title=title, status=405, redis_down=True).render()
    response["Allow"] = refused["Allow"]
    return response
