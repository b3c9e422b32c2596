"""The Redis of a test run: one private server for each process, started at its first use.

DELAYQ_TESTING_REDIS names another server, for machines without a server program. Tests use a prefix of their own there.
"""

import os

from django_delayq.testing.local_redis import LocalRedisServer, ServerNotFound

_server: LocalRedisServer | None = None


def server_url() -> str:
    """Return the server's URL and start the server if needed. Raises `ServerNotFound`, with a note on the cure."""
    global _server
    if url := os.environ.get("DELAYQ_TESTING_REDIS"):
        return url
    if _server is None:
        try:
            _server = LocalRedisServer().start()
        except ServerNotFound as error:
            error.add_note("Or name a running server: DELAYQ_TESTING_REDIS=redis://localhost:6379/9")
            raise
    return _server.url
