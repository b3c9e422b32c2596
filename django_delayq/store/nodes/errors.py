"""Errors: the errors of the client library as `StoreError`s, by Redis's error codes."""

import re
import ssl
from collections.abc import Callable, Sequence
from typing import TypeVar

from redis import exceptions as redis_errors

from django_delayq.exceptions import (
    JobRefused,
    KeyHeld,
    OtherLayout,
    ScriptFault,
    StaleExchange,
    StoreAuthError,
    StoreError,
    StoreRejected,
    StoreUnavailable,
    TenantFull,
    see,
)
from django_delayq.store.nodes.cures import (
    CONNECTION_NOT_READY,
    POOL_EXHAUSTED,
    REJECTIONS,
    SEE_NO_ANSWER,
    SERVER_FULL,
    cure_of_connection,
    cure_of_fault,
)
from django_delayq.store.nodes.deadline import TimeOver

T = TypeVar("T")

#: Redis's error codes for "not now": the call may be repeated. LOADING, MASTERDOWN … also arrive as plain errors.
_REJECTED = frozenset({"OOM", "READONLY", "MISCONF", "NOREPLICAS"})
_UNAVAILABLE = frozenset({"LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "UNBLOCKED"})
#: Those of them, and others, that a cluster gives while a slot is on its way to another server.
_BRIEF = frozenset({"TRYAGAIN", "UNBLOCKED"})
#: Redis 6.2 wraps the error of a command in a script: "Error running script (…): @user_script: 9: -OOM command …".
_WRAPPED = re.compile(r"@user_script: ?\d+: -([A-Z]+) ")
#: The library removes the codes that it knows from the message. (MASTERDOWN is a kind of CLUSTERDOWN there.)
_NOT_READY = (redis_errors.BusyLoadingError, redis_errors.ClusterDownError, redis_errors.TryAgainError)
_AUTH = frozenset({"WRONGPASS", "NOAUTH", "NOPERM"})
#: Redis's error code for a client of another host while it is in protected mode. Redis sends it before any command.
_PROTECTED = "DENIED"
#: A command that the user may not run inside a script fails without a code: Redis 6.2 and 7, then Valkey 9.
_REFUSED = re.compile(r"The user executing the script can't|ACL failure in script")
#: Errors of the library for a server that does not reply.
UNREACHABLE = (redis_errors.ConnectionError, redis_errors.TimeoutError)


class NoServer(redis_errors.ConnectionError):
    """No server has the shard now."""


class GreetingFailed(redis_errors.ConnectionError):
    """The server closed a new connection before its first command."""


#: The connection failed, or there was none: surely nothing was sent.
_NOT_CONNECTED = (
    *(ConnectionRefusedError, FileNotFoundError, PermissionError, ssl.SSLCertVerificationError),
    *(redis_errors.MaxConnectionsError, NoServer, GreetingFailed),
)
#: Messages that mean the same.
_NO_CONNECTION = frozenset({POOL_EXHAUSTED, CONNECTION_NOT_READY, SERVER_FULL})


def with_store_errors(
    run: Callable[[], T],
    *,
    place: Callable[[], str],
    source_line: Callable[[str], str] | None = None,
    user: Callable[[], str] | None = None,
) -> T:
    """Run something that raises errors of the library; raises what `to_store_error()` makes of them."""
    try:
        return run()
    except redis_errors.RedisError as error:
        raise to_store_error(error, place=place, source_line=source_line, user=user) from error


def is_read_only(error: Exception) -> bool:
    """Whether the server refused a write because it is a replica."""
    return isinstance(error, redis_errors.ReadOnlyError) or _code(str(error)) == "READONLY"


def was_not_run(error: Exception) -> bool:
    """Whether the failed command, or the script that failed, surely changed nothing."""
    if isinstance(error, UNREACHABLE) and not isinstance(error, redis_errors.BusyLoadingError):
        return any(isinstance(cause, _NOT_CONNECTED) or str(cause) in _NO_CONNECTION for cause in _causes(error))
    return isinstance(error, _NOT_READY) or _code(str(error)) in _REJECTED | _UNAVAILABLE


def _tenant_full(words: Sequence[str]) -> TenantFull:
    """Return the error of the first full tenant of a batch, with those of the others."""
    first, *others = (
        TenantFull(waiting=int(float(waiting)), most=int(float(most)), indexes=[*map(int, numbers.split(","))])
        for numbers, waiting, most in zip(words[::3], words[1::3], words[2::3], strict=True)
    )
    first.others = others
    return first


def to_store_error(
    error: Exception,
    *,
    place: Callable[[], str] | None = None,
    source_line: Callable[[str], str] | None = None,
    user: Callable[[], str] | None = None,
) -> StoreError | JobRefused:
    """Return the `StoreError` or `JobRefused` for an error of the client library, by Redis's error code.

    `place` returns the server, and the shard if there is one, for people. `source_line` finds the line of a script in
    the message of its error. `user` returns the user's name in Redis.

    The class alone is not enough: a wrong password is a ConnectionError in the library, and several temporary
    conditions are plain ResponseErrors.
    """
    message = str(error)
    code = _code(message)
    at = f" ({place()})" if place else ""
    # An EVALSHA before AUTH has too many arguments: Redis 7 replies without NOAUTH.
    unauthenticated = "unauthenticated" in message
    if (
        isinstance(error, redis_errors.AuthenticationError | redis_errors.NoPermissionError)
        or code in _AUTH
        or unauthenticated
        or _REFUSED.search(message)
    ):
        of_user = f" of user {user()!r}" if user else ""
        where = f" at {source_line(message)}" if source_line else ""
        # The first command of a connection without a password fails in one of these ways.
        lacks_password = unauthenticated or code == "NOAUTH" or "Authentication required" in message
        cure = (
            "REDIS has no password: write redis://:password@host"
            if lacks_password
            else "check user and password in REDIS, and the rule of the user (manage.py delayq_acl)"
        )
        return StoreAuthError(
            f"Redis refused the password or a command{of_user}{where}{at}: {message.rstrip('.')}; {cure}. "
            f"{see('troubleshooting#redis-refuses-the-password')}"
        )
    if code == _PROTECTED:
        # The reply itself has a page of advice.
        return StoreAuthError(
            f"Redis is in protected mode and refuses other hosts{at}, nothing was stored; set requirepass in "
            f"redis.conf, and write the password in REDIS. {see('troubleshooting#redis-refuses-the-password')}"
        )
    if code == "KEYHELD":
        _, index, holder = message.split(" ")
        return KeyHeld(holder=holder, index=int(index))
    if code == "TENANTFULL":
        return _tenant_full(message.split(" ")[1:])
    if code == "LAYOUT":
        stored = message.partition(" ")[2].strip()
        return OtherLayout(f"the shard has the layout {stored!r}: the number of shards has changed", stored=stored)
    if code == "STALEEXCHANGE":
        return StaleExchange(f"a later exchange of this worker was carried out already: {message}")
    if isinstance(error, redis_errors.ReadOnlyError):
        code = "READONLY"
    if isinstance(error, redis_errors.OutOfMemoryError):
        code = "OOM"
    if code in _REJECTED:
        return StoreRejected(
            f"Redis takes no writes now, nothing was stored{at}: {message.rstrip('.')}; {REJECTIONS[code]}. "
            f"{see('troubleshooting#redis-takes-no-writes')}",
            code=code,
        )
    if isinstance(error, redis_errors.AskError):
        return StoreUnavailable(
            f"Another node of the cluster has the shard{at} ({message}). If this goes on and REDIS is redis://, the "
            f"setting names a node as if it were a server of its own: use redis+cluster://. "
            f"{see('troubleshooting#a-cluster-is-named-as-one-server')}",
            maybe_accepted=False,
            brief=True,
        )
    if isinstance(error, _NOT_READY) or code in _UNAVAILABLE:
        is_brief = isinstance(error, redis_errors.TryAgainError) or code in _BRIEF
        text = f"Redis is not ready{at}: {message.rstrip('.')}. {SEE_NO_ANSWER}"
        return StoreUnavailable(text, maybe_accepted=False, brief=is_brief)
    if isinstance(error, TimeOver):
        text = f"Redis is too slow{at}: {message.rstrip('.')}. {SEE_NO_ANSWER}"
        return StoreUnavailable(text, maybe_accepted=False, slow=True)
    if isinstance(error, redis_errors.ConnectionError | redis_errors.TimeoutError):
        # The library hides the reason of some errors in those behind them.
        cure = cure_of_connection(" ".join(str(cause) for cause in _causes(error)))
        why = f"{message.rstrip('.')}; {cure}. {SEE_NO_ANSWER}"
        is_full = message == POOL_EXHAUSTED
        return StoreUnavailable(
            f"No connection to Redis is free{at}: {why}" if is_full else f"Redis did not answer{at}: {why}",
            maybe_accepted=not was_not_run(error),
            slow=isinstance(error, redis_errors.TimeoutError),
        )
    where = f" at {source_line(message)}" if source_line else ""
    cure = cure_of_fault(message)
    text = f"Redis reported a fault{where}{at}: {message}{cure and f'; {cure}'}"
    return ScriptFault(text, maybe_accepted=True)


def _code(message: str) -> str:
    wrapped = _WRAPPED.search(message)
    return wrapped[1] if wrapped else message.split(" ", 1)[0].lstrip("-")


def _causes(error: BaseException) -> Sequence[BaseException]:
    """Return an error and those behind it, without one that the caller handles while it calls the store."""
    chain = [error]
    while (behind := chain[-1].__cause__ or _of_library(chain[-1].__context__)) is not None:
        if any(behind is each for each in chain):
            break
        chain.append(behind)
    return chain


def _of_library(error: BaseException | None) -> BaseException | None:
    """Return the error if the client library, or the store, has handled it."""
    # The outermost frame of a traceback is the one that handles the error.
    frame = error and error.__traceback__ and error.__traceback__.tb_frame
    module = f"{frame.f_globals.get('__name__')}." if frame else ""
    return error if module.startswith(("redis.", "django_delayq.store.")) else None
