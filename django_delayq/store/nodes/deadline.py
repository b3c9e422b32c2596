"""Deadline: one timeout for a whole call; the client library has one for each step."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Any

from redis import exceptions as redis_errors

#: The shortest timeout of a step, in seconds: 0 would make the socket non-blocking.
_SHORTEST = 0.001

#: When the calls of this context end that take several commands (time.monotonic()); 0: no such time.
_until: ContextVar[float] = ContextVar("_until", default=0.0)


class TimeOver(redis_errors.RedisError):
    """A command was not sent, because the time of the `call_until()` block around it is over."""


@contextmanager
def call_until(until: float) -> Iterator[None]:
    """End the commands in the `with` block at a time of the monotonic clock, and send none after it; 0: as ever.

    The end of a block around it holds too. Threads that `at_once()` starts inherit it.
    """
    around = _until.get()
    token = _until.set(min(until, around) if until and around else until or around)
    try:
        yield
    finally:
        _until.reset(token)


def with_deadline(connection_class: Any, *, seconds: float) -> Any:
    """Return a connection class on which connecting, the handshake, sending and the reply share `seconds`.

    A call begins with connecting, or with sending if the connection is open: then the reply has nearly all of them.
    """

    # Changing a socket's timeout is a system call: a timeout that is right within 1 % stays.
    nearly_all = seconds * 0.99

    class Deadline(connection_class):  # type: ignore[misc]
        #: time.monotonic() at which the current call times out.
        _until = 0.0
        #: Whether the handshake is under way.
        _in_handshake = False
        #: Whether it was connected for a call that is not sent yet.
        _fresh = False

        def connect(self) -> None:
            if self._sock is None and not self._in_handshake:
                self._start_timer()
                self._open_connection()
                self._fresh = True
            else:
                super().connect()

        def send_packed_command(self, command: Any, *args: Any, **kwargs: Any) -> None:
            if self._in_handshake:
                self._apply_timeout()
                super().send_packed_command(command, *args, **kwargs)
                return
            # If the new connection was not used at once, its time may be over.
            if not (self._fresh and self._left() > _SHORTEST):
                self._start_timer()
            self._fresh = False
            if self._sock is None:
                self._open_connection()
            if self._sock.gettimeout() < nearly_all:
                self._apply_timeout()
            super().send_packed_command(command, *args, **kwargs)

        def read_response(self, *args: Any, **kwargs: Any) -> Any:
            if self._until - monotonic() < nearly_all:
                self._apply_timeout()
            return super().read_response(*args, **kwargs)

        # The library reads these when it connects; some releases also set them in the constructor.
        @property
        def socket_timeout(self) -> float:
            return self._left()

        @socket_timeout.setter
        def socket_timeout(self, _: object) -> None: ...

        @property
        def socket_connect_timeout(self) -> float:
            return self._left()

        @socket_connect_timeout.setter
        def socket_connect_timeout(self, _: object) -> None: ...

        def _open_connection(self) -> None:
            self._in_handshake = True
            try:
                super().connect()
            finally:
                self._in_handshake = False

        def _start_timer(self) -> None:
            until, now = _until.get(), monotonic()
            if until and now >= until:
                raise TimeOver("the time of these calls is over, so this one was not sent")
            self._until = min(until, now + seconds) if until else now + seconds

        def _left(self) -> float:
            return max(_SHORTEST, self._until - monotonic())

        def _apply_timeout(self) -> None:
            if self._sock is not None:
                self._sock.settimeout(self._left())

    return Deadline
