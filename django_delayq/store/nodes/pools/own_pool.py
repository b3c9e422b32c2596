"""Own pool: the connection pool of the package's own clients."""

from typing import Any

import redis

from django_delayq.store.nodes.cures import CONNECTION_NOT_READY

#: Seconds that a server may take to refuse one more connection.
_REFUSAL_WAIT = 0.5


class OwnPool(redis.ConnectionPool):
    """A pool whose errors have the words of a server that refuses connections.

    Such a server sends its reason before any command, and closes. The library takes that for an old reply: it connects
    once more, and then raises an error without the reason.
    """

    def get_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Return a connection. Raises the error that the server sent to a new one."""
        try:
            return super().get_connection(*args, **kwargs)
        except redis.ConnectionError as error:
            if str(error) == CONNECTION_NOT_READY:
                self._raise_refusal()
            raise

    def _raise_refusal(self) -> None:
        connection = self.connection_class(**self.connection_kwargs)
        try:
            connection.connect()
            if connection.can_read(timeout=_REFUSAL_WAIT):
                connection.read_response()
        finally:
            connection.disconnect()
