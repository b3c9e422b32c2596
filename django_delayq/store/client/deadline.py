"""Deadline: one time for all that a call takes, where the client library has one for each step."""

from time import monotonic
from typing import Any

#: The shortest time a step gets, in seconds: 0 would mean not to wait at all.
_LEAST = 0.001


def with_deadline(connection_class: Any, *, seconds: float) -> Any:
    """Return a kind of connection on which connecting, greeting, sending and the answer share `seconds`.

    A call begins with connecting, or with sending where the connection is open: the answer then has nearly all of them.
    """

    # A socket's own time is changed by a system call: what is right to a hundredth stays.
    nearly_all = seconds * 0.99

    class Deadline(connection_class):  # type: ignore[misc]
        #: time.monotonic() when the call under way is given up.
        _until = 0.0
        #: Whether a step within another is under way, and whether it was connected for a call that is still to be sent.
        _within = _fresh = False

        def connect(self) -> None:
            if self._sock is None and not self._within:
                self._begin()
                self._greet()
                self._fresh = True
            else:
                super().connect()

        def send_packed_command(self, command: Any, *args: Any, **kwargs: Any) -> None:
            if self._within:
                self._limit()
                super().send_packed_command(command, *args, **kwargs)
                return
            # Of a connection that nobody used at once the time may be over.
            if not (self._fresh and self._left() > _LEAST):
                self._begin()
            self._fresh = False
            if self._sock is None:
                self._greet()
            if self._sock.gettimeout() < nearly_all:
                self._limit()
            super().send_packed_command(command, *args, **kwargs)

        def read_response(self, *args: Any, **kwargs: Any) -> Any:
            if self._until - monotonic() < nearly_all:
                self._limit()
            return super().read_response(*args, **kwargs)

        # The library asks for them when it connects. Nobody else sets them: some releases do in their constructor.
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

        def _greet(self) -> None:
            self._within = True
            try:
                super().connect()
            finally:
                self._within = False

        def _begin(self) -> None:
            self._until = monotonic() + seconds

        def _left(self) -> float:
            return max(_LEAST, self._until - monotonic())

        def _limit(self) -> None:
            if self._sock is not None:
                self._sock.settimeout(self._left())

    return Deadline
