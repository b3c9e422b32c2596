"""Script: one Lua file of `store/lua`, and the translation of Redis's errors into `StoreError`s.

The header of a script names its keys: first those that every call has, after a semicolon those that depend on the call.
"""

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import sha1
from typing import Any, TypeVar

from redis import exceptions as redis_errors

from django_delayq.exceptions import (
    JobRefused,
    KeyHeld,
    ScriptFault,
    StaleExchange,
    StoreAuthError,
    StoreError,
    StoreRejected,
    StoreUnavailable,
    TenantFull,
)
from django_delayq.store.client.prelude import FOLDER, PARTS, prelude

T = TypeVar("T")

_HEADER = re.compile(r"^-- KEYS: (?P<names>\w+(?:,(?: |\n--   )\w+)*)[;.]", re.MULTILINE)
_LAZY = re.compile(r"^-- Lazy: (?P<parts>\w+(?:, \w+)*)\.", re.MULTILINE)
#: Keys of the queue of the call. Shared functions have parameters of these names, for the keys of any queue.
_OF_QUEUE = frozenset({"scheduled", "ready", "recovered", "parked", "queue_notify"})
_LINE = re.compile(r"(user_script|@user_script): ?(\d+)")

#: Redis's error codes for "not now": the call may be repeated. LOADING, MASTERDOWN … also arrive as plain errors.
_REJECTED = frozenset({"OOM", "READONLY", "MISCONF", "NOREPLICAS"})
_UNAVAILABLE = frozenset({"LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "UNBLOCKED"})
#: Redis 6.2 wraps the error of a command in a script: "Error running script (…): @user_script: 9: -OOM command …".
_WRAPPED = re.compile(r"@user_script: ?\d+: -([A-Z]+) ")
#: The library removes the codes that it knows from the message. (MASTERDOWN is a kind of CLUSTERDOWN there.)
_NOT_READY = (redis_errors.BusyLoadingError, redis_errors.ClusterDownError, redis_errors.TryAgainError)
_AUTH = frozenset({"WRONGPASS", "NOAUTH", "NOPERM"})
#: A command that the user may not run inside a script fails without a code: Redis 6.2 and 7, then Valkey 9.
_REFUSED = re.compile(r"The user executing the script can't|ACL failure in script")
#: The connection failed, or none was free: surely nothing was sent.
_NOT_CONNECTED = (ConnectionRefusedError, FileNotFoundError, PermissionError, redis_errors.MaxConnectionsError)


class Script:
    """One Lua file with the part of the prelude that it uses, and the names of its keys."""

    def __init__(self, name: str) -> None:
        self._source = (FOLDER / f"{name}.lua").read_text(encoding="utf-8")
        header = _HEADER.search(self._source)
        if header is None:
            raise ValueError(f"the header of {name}.lua does not name its keys")
        self.name = name
        #: Names of the keys that every call has, in order.
        self.key_names: tuple[str, ...] = tuple(re.findall(r"\w+", header["names"]))

    @cached_property
    def text(self) -> str:
        """The text that Redis runs. Made at its first use, because a process uses few of the scripts."""
        lazy = _LAZY.search(self._source)
        keys = {name: f"KEYS[{number}]" for number, name in enumerate(self.key_names, start=1)}
        # As variables only those whose names are parameters of shared functions: a function that uses a variable from
        # outside costs a search in a list of them at every call. FIXED is the number of keys that every call has; those
        # of the call follow.
        variables = {"FIXED": str(len(keys))} | {name: keys[name] for name in self.key_names if name in _OF_QUEUE}
        keys = {name: key for name, key in keys.items() if name not in variables}
        body = prelude().in_front_of(
            self._source, lazy=frozenset(lazy["parts"].split(", ") if lazy else ()), replacements=keys
        )
        return f"local {', '.join(variables)} = {', '.join(variables.values())}\n{body}"

    @cached_property
    def sha(self) -> str:
        """The digest by which Redis knows the text."""
        return sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def source_line(self, message: str) -> str:
        """Return `name.lua:line` for the text of a script error."""
        match = _LINE.search(message)
        if match is None:
            return f"{self.name}.lua"
        # The names of the keys are the first line.
        line = int(match[2]) - 1
        for name, text in PARTS.items():
            if line <= text.count("\n"):
                return f"{name}.lua:{line}"
            line -= text.count("\n")
        return f"{self.name}.lua:{line}"


def with_store_errors(run: Callable[[], T], client: Any) -> T:
    """Run plain commands of a client; raises `StoreError`s as scripts do."""
    try:
        return run()
    except redis_errors.RedisError as error:
        raise to_store_error(error, client=client) from error


def _tenant_full(words: Sequence[str]) -> TenantFull:
    """Return the error of the first full tenant of a batch, with those of the others."""
    first, *others = (
        TenantFull(waiting=int(float(waiting)), most=int(float(most)), indexes=[*map(int, numbers.split(","))])
        for numbers, waiting, most in zip(words[::3], words[1::3], words[2::3], strict=True)
    )
    first.others = others
    return first


def to_store_error(error: Exception, *, script: Script | None = None, client: Any = None) -> StoreError | JobRefused:
    """Return the `StoreError` or `JobRefused` for an error of the client library, by Redis's error code.

    The class alone is not enough: a wrong password is a ConnectionError in the library, and several temporary
    conditions are plain ResponseErrors.
    """
    message = str(error)
    wrapped = _WRAPPED.search(message)
    code = wrapped[1] if wrapped else message.split(" ", 1)[0].lstrip("-")
    # An EVALSHA before AUTH has too many arguments: Redis 7 replies without NOAUTH.
    unauthenticated = "unauthenticated" in message
    if (
        isinstance(error, redis_errors.AuthenticationError | redis_errors.NoPermissionError)
        or code in _AUTH
        or unauthenticated
        or _REFUSED.search(message)
    ):
        username = client.connection_pool.connection_kwargs.get("username") if client else None
        user = f" of user {username or 'default'!r}" if client else ""
        where = f" at {script.source_line(message)}" if script else ""
        return StoreAuthError(f"Redis refused the password or a command{user}{where}: {message}")
    if code == "KEYHELD":
        _, index, holder = message.split(" ")
        return KeyHeld(holder=holder, index=int(index))
    if code == "TENANTFULL":
        return _tenant_full(message.split(" ")[1:])
    if code == "STALEEXCHANGE":
        return StaleExchange(f"a later exchange of this worker was carried out already: {message}")
    if isinstance(error, redis_errors.ReadOnlyError):
        code = "READONLY"
    if isinstance(error, redis_errors.OutOfMemoryError):
        code = "OOM"
    if code in _REJECTED:
        return StoreRejected(f"Redis takes no writes now, nothing was stored: {message}", code=code)
    if isinstance(error, _NOT_READY) or code in _UNAVAILABLE:
        return StoreUnavailable(f"Redis is not ready: {message}", maybe_accepted=False)
    if isinstance(error, redis_errors.ConnectionError | redis_errors.TimeoutError):
        sent = not any(isinstance(cause, _NOT_CONNECTED) for cause in _causes(error))
        return StoreUnavailable(f"Redis did not answer: {message}", maybe_accepted=sent)
    where = f" at {script.source_line(message)}" if script else ""
    cure = "; manage.py delayq_check --repair deletes keys of another type" if "WRONGTYPE" in message else ""
    return ScriptFault(f"Redis reported a fault{where}: {message}{cure}", maybe_accepted=True)


def _causes(error: BaseException | None) -> Sequence[BaseException]:
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain
