"""Replication: a producer's call waits until replicas have what it wrote."""

from collections.abc import Callable, Sequence
from typing import Any

from redis import exceptions as redis_errors

from django_delayq.exceptions import NotReplicated, StoreAuthError
from django_delayq.store.nodes.resp import encode

#: Largest share of a call's time for which it waits for replicas, and how late an idle server ends a wait, in seconds.
_SHARE, _LATE = 0.8, 0.1


class Replication:
    """How many replicas are waited for, and for how long."""

    def __init__(self, replicas: int, *, timeout: float, call_timeout: float, key: str) -> None:
        """`timeout`: seconds; `call_timeout`: those of the whole call; `key`: one of the shard, for its own use."""
        self._replicas = replicas
        timeout_ms = max(1, int(min(timeout, _SHARE * call_timeout - _LATE) * 1_000))
        #: The packed commands that follow a call on its connection. WAIT counts the replicas that have the last write
        #: of the connection. Valkey takes no other command for one, so a call that finds its work done by an earlier
        #: try would be confirmed at once. That is why a write comes between.
        self.commands = [encode("SET", key, 1), encode("WAIT", replicas, timeout_ms)]

    def check(self, replies: Sequence[Any], *, user: Callable[[], str]) -> None:
        """Raise `NotReplicated`, by the replies to `commands`, if too few replicas confirmed the call in time.

        Raises `StoreAuthError` if the user may not wait; `user` returns its name.
        """
        for reply in replies:
            if isinstance(reply, redis_errors.NoPermissionError):
                raise StoreAuthError(
                    f"Redis carried out the call, but user {user()!r} may not wait for replicas: {reply}",
                    maybe_accepted=True,
                )
        # A primary that was demoted meanwhile replies with an error.
        confirmed = replies[-1] if isinstance(replies[-1], int) else 0
        if confirmed < self._replicas:
            raise NotReplicated(
                f"Redis carried out the call, but {confirmed} of {self._replicas} replicas confirmed it in time: "
                f"a failover now may undo it",
                replicas=confirmed,
            )
