"""What a person's session keeps of their actions: which steps ran, and the action that has not ended.

Without sessions, or with signed cookies, the forms alone carry an action.
"""

from contextlib import suppress
from typing import Any, NamedTuple

from django.contrib.sessions.backends.base import UpdateError
from django.http import HttpRequest

from django_delayq.admin.actions.action_request import ActionRequest
from django_delayq.admin.lists.job_lists import counted

#: Nonce of a request -> number of its next step; and for how many requests.
_STEPS, _REQUESTS_KEPT = "django_delayq.actions", 100
#: Nonce and signed form of the last action that has not ended.
_UNFINISHED = "django_delayq.unfinished_action"
#: More than the steps of any request.
_NO_STEP = 2**31


class UnfinishedAction(NamedTuple):
    """What a page shows of the action that has not ended."""

    title: str
    handled: int
    total: int
    signed_request: str


def claim_step(request: HttpRequest, action_request: ActionRequest) -> bool:
    """Claim the next step of a request, and return False if an earlier press of the button did so."""
    session = getattr(request, "session", None)
    if session is None:
        return True
    if action_request.steps < _steps(session).get(action_request.nonce, 0):
        return False
    _save(session, action_request, next_step=action_request.steps + 1)
    return True


def keep_unfinished(request: HttpRequest, action_request: ActionRequest) -> None:
    """Keep a request after a step, so that its person can continue it, until it has ended or another one begins."""
    session = getattr(request, "session", None)
    if session is None:
        return
    # It may have been stopped while this step ran.
    if action_request.finished or action_request.steps < _steps(session).get(action_request.nonce, 0):
        _forget(session, action_request)
    else:
        session[_UNFINISHED] = [action_request.nonce, action_request.sign(request)]
    # The session is written as a whole, so the steps that others claimed meanwhile must be in it.
    _save(session, action_request, next_step=action_request.steps)


def stop(request: HttpRequest, action_request: ActionRequest) -> None:
    """Refuse all further steps of a request; a step that runs ends as usual."""
    session = getattr(request, "session", None)
    if session is not None:
        _forget(session, action_request)
        _save(session, action_request, next_step=_NO_STEP)


def unfinished(request: HttpRequest) -> UnfinishedAction | None:
    """Return the person's action that has not ended, if it is less than an hour old."""
    session = getattr(request, "session", None)
    kept = session.get(_UNFINISHED) if session is not None else None
    if not kept or (found := ActionRequest.unsign(request, kept[1])) is None:
        return None
    title = counted(found.action.confirm_text, found.count)
    return UnfinishedAction(title=title, handled=found.handled, total=found.count, signed_request=kept[1])


def _forget(session: Any, action_request: ActionRequest) -> None:
    if session.get(_UNFINISHED, [""])[0] == action_request.nonce:
        del session[_UNFINISHED]


def _steps(session: Any) -> dict[str, int]:
    # A fresh copy: this request read its own before another press may have written it.
    return type(session)(session.session_key).get(_STEPS, {})  # type: ignore[no-any-return]


def _save(session: Any, action_request: ActionRequest, *, next_step: int) -> None:
    steps = _steps(session)
    # An older form may be the later one to come here.
    next_step = max(next_step, steps.pop(action_request.nonce, 0))
    session[_STEPS] = dict([*steps.items(), (action_request.nonce, next_step)][-_REQUESTS_KEPT:])
    # The middleware must not store it once more with the response: it would overwrite what others stored meanwhile. (A
    # session in signed cookies turns this on again as it is saved.)
    session.modified = False
    # The person may have logged out meanwhile: what was done is said all the same.
    with suppress(UpdateError):
        session.save()
