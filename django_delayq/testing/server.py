"""Server: the Redis of a test run: one private server a process, started when the first test asks for it.

DELAYQ_TESTING_REDIS names another, for machines without a server program; tests keep to a prefix of their own there.
"""

import os
from multiprocessing.util import Finalize

from django_delayq.testing.local_redis import LocalRedisServer, ServerNotFound

_server: LocalRedisServer | None = None


def server_url() -> str:
    """Return the server's URL, and start it where it does not run. Raises `ServerNotFound`, which tells the cure."""
    global _server
    given = os.environ.get("DELAYQ_TESTING_REDIS")
    if given:
        return given
    if _server is None:
        try:
            server = LocalRedisServer().start()
        except ServerNotFound as error:
            error.add_note("Or name a server that runs: DELAYQ_TESTING_REDIS=redis://localhost:6379/9")
            raise
        # Processes of `manage.py test --parallel` leave without the calls of `atexit`.
        Finalize(None, server.stop, exitpriority=1)
        _server = server
    return _server.url
