"""Line: connections to one Redis that are taken from the client's pool once and kept, for what is asked all the time.

The client's own way to a command (out of the pool, through its counters and retries, and back) takes 25 µs of
computing, this one 9: that was a third of what it costs to enqueue a job.
"""

import os
from collections.abc import Sequence
from typing import Any, Protocol

from redis import exceptions as redis_errors

from django_delayq.store.client.resp import Part, encode

#: Connections of a pool whose number nobody limited: as many as there are threads that ask.
ANY_NUMBER = 2**31


class ConnectionCache:
    """One question at a time on each connection; safe to use from several threads."""

    def __init__(self, client: Any) -> None:
        self.client = client
        # The last one used is the next: under little load the others may be closed by the server.
        self._idle: list[Any] = []
        #: Connections are kept here. Not where their number is limited: they would be missing in the pool, from which
        #: others take theirs.
        self.keeps: bool = client.connection_pool.max_connections >= ANY_NUMBER

    def ask(self, *parts: Part) -> Any:
        """Send one command and return its answer, once: nothing is repeated. Raises the library's errors."""
        return self.send(encode(*parts)).answer()

    def ask_all(self, *commands: Sequence[Part]) -> list[Any]:
        """Send these commands at once and return their answers, in one round trip. Raises as `ask()` does."""
        return self.send(b"".join(encode(*parts) for parts in commands)).answers(len(commands))

    def send(self, packed: bytes) -> "PendingReply":
        """Send what is packed; its answer is to be read, or given up, whatever happens. Raises the library's errors."""
        connection = self._taken()
        question = PendingReply(self, connection)
        try:
            connection.send_packed_command([packed])
        except BaseException:
            question.give_up()
            raise
        return question

    def disconnect_idle(self) -> None:
        """Close what is not in use, in the client's pool too; the next command connects anew."""
        # Plain reads go by the pool: they too would stay with a server that no longer is the one.
        self.client.connection_pool.disconnect(inuse_connections=False)
        closed = []
        while (connection := self._popped()) is not None:
            connection.disconnect()
            closed.append(connection)
        self._idle += closed

    def put_back(self, connection: Any) -> None:
        """Take a connection back on which nothing is unanswered."""
        if self.keeps:
            self._idle.append(connection)
        else:
            self.client.connection_pool.release(connection)

    def _taken(self) -> Any:
        connection = self._popped()
        if connection is None or connection.pid != os.getpid():
            # A socket from before a fork is the parent's.
            return self.client.connection_pool.get_connection()
        if connection._sock is not None:
            try:
                if connection.can_read():
                    raise redis_errors.ConnectionError("there is an answer that nobody asked for")
            except (redis_errors.ConnectionError, redis_errors.TimeoutError, OSError):
                # Closed by the server meanwhile. Sending connects anew.
                connection.disconnect()
        return connection

    def _popped(self) -> Any:
        try:
            return self._idle.pop()
        except IndexError:
            return None


class ConnectionOwner(Protocol):
    """Whose connection a question was sent on."""

    def put_back(self, connection: Any) -> None:
        """Take the connection back; nothing is unanswered on it, or it is closed."""


class PendingReply:
    """What was sent on a connection and is not answered yet."""

    __slots__ = ("_connection", "_line")

    def __init__(self, line: "ConnectionOwner", connection: Any) -> None:
        self._line, self._connection = line, connection

    def answer(self) -> Any:
        """Read the one answer. Raises the library's errors."""
        try:
            answer = self._read()
        except redis_errors.ResponseError:
            self._line.put_back(self._connection)
            raise
        except BaseException:
            self.give_up()
            raise
        self._line.put_back(self._connection)
        return answer

    def answers(self, number: int) -> list[Any]:
        """Read so many answers. Raises the library's errors."""
        try:
            answers = [self._read() for _ in range(number)]
        except BaseException:
            # Also after an error of the server's: the answers behind it would be another's.
            self.give_up()
            raise
        self._line.put_back(self._connection)
        return answers

    def _read(self) -> Any:
        if self._connection.pid != os.getpid():
            raise redis_errors.ConnectionError("the answer is the process's that asked, which this one was forked from")
        if self._connection._sock is None:
            # The library's own parser would read from nothing.
            raise redis_errors.ConnectionError("the connection was closed before its answer was read")
        return self._connection.read_response()

    def give_up(self) -> None:
        """Close the connection: what was asked may still be answered, to whoever asks next."""
        # One whose end is interrupted (a time limit may strike anywhere) is kept by nobody.
        self._connection.disconnect()
        self._line.put_back(self._connection)
