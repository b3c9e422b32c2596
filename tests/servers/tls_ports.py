"""TLS ports: a server that listens on a free one, which is chosen anew if another process takes it first."""

from collections.abc import Callable

from django_delayq.testing.local_redis import PORT_TRIES, LocalRedisServer, ServerNotStarted, free_port


def start_with_tls(make: Callable[[int], LocalRedisServer]) -> tuple[LocalRedisServer, int]:
    """Start the server that `make` returns for a TLS port, and return it with its port; the caller stops it."""
    left = PORT_TRIES
    while True:
        port, left = free_port(), left - 1
        try:
            return make(port).start(), port
        except ServerNotStarted as error:
            if not left or "Address already in use" not in str(error):
                raise
