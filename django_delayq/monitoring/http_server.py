"""HTTP server: the metrics and the probes of one dispatcher or worker, on an address of its own.

There is no login. Use an address that only your monitoring can reach.
"""

import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from django_delayq.exceptions import StoreError
from django_delayq.logs import logger
from django_delayq.monitoring.accuracy import Accuracy
from django_delayq.monitoring.figures import NEEDS_PACKAGE, Figures
from django_delayq.monitoring.liveness import check_liveness
from django_delayq.monitoring.pulse import Pulse
from django_delayq.monitoring.stats import stats
from django_delayq.store.store import Store

#: Seconds after which a client that sends or reads nothing is cut off.
_CLIENT_TIMEOUT = 10.0
_TEXT = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    """The response to one request."""

    status: HTTPStatus
    body: bytes
    content_type: str = _TEXT


class MonitoringServer:
    """`/metrics`, `/stats.json`, `/live` and `/ready`, in threads of its own."""

    def __init__(self, host: str, port: int, *, store: Store, pulse: Pulse) -> None:
        """Listen on an address; port 0 is any free one. Raises `OSError`."""
        self._store, self._pulse, self._accuracy = store, pulse, Accuracy()
        self._lock = threading.Lock()
        paths: Mapping[str, Callable[[], Answer]] = {
            "/metrics": self._metrics,
            "/stats.json": self._stats,
            "/live": self._live,
            "/ready": self._ready,
        }
        self._server = _Server((host, port), partial(_Handler, paths))
        # Otherwise a process that a job forks, and that outlives this one, would keep the address.
        os.register_at_fork(after_in_child=self._server.socket.close)

    @property
    def address(self) -> str:
        """The address that it listens on."""
        host, port = self._server.server_address[:2]
        return f"[{host!s}]:{port}" if ":" in str(host) else f"{host!s}:{port}"

    def start(self) -> None:
        """Answer requests from now on."""
        threading.Thread(target=self._server.serve_forever, name="delayq-http", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def _metrics(self) -> Answer:
        try:
            from django_delayq.monitoring import prometheus
        except ImportError:
            return Answer(HTTPStatus.NOT_IMPLEMENTED, NEEDS_PACKAGE.encode())
        return self._one_at_a_time(prometheus.text, prometheus.CONTENT_TYPE)

    def _stats(self) -> Answer:
        return self._one_at_a_time(lambda figures: json.dumps(stats(figures)).encode(), "application/json")

    def _one_at_a_time(self, write: Callable[[Figures], bytes], content_type: str) -> Answer:
        """Answer with the figures. Several scrapes are no load of their own, and do not wait long for each other."""
        if not self._lock.acquire(timeout=_CLIENT_TIMEOUT):
            return _probe(["Another scrape has not ended."])
        try:
            return Answer(HTTPStatus.OK, write(Figures(self._store, self._accuracy)), content_type)
        finally:
            self._lock.release()

    def _live(self) -> Answer:
        return _probe(self._pulse.stuck)

    def _ready(self) -> Answer:
        if self._pulse.is_stopping:
            return _probe(["This process stops."])
        found = check_liveness(self._store)
        # Not queues that nobody serves: another Deployment may be about to serve them, and each of them would wait.
        return _probe([*self._pulse.stuck, *found.missing, *found.dispatch])


def _probe(faults: list[str]) -> Answer:
    status = HTTPStatus.SERVICE_UNAVAILABLE if faults else HTTPStatus.OK
    return Answer(status, ("\n".join(faults or ["ok"]) + "\n").encode())


class _Server(ThreadingHTTPServer):
    """Each request has a thread of its own."""

    daemon_threads = True
    # The probes of many monitors may come at one moment.
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], handler: Any) -> None:
        # Otherwise the base class knows IPv4 alone.
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what a request raised, unless its client has left."""
        if not isinstance(sys.exception(), OSError):
            logger.exception("A request to --http failed; this is a bug")


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    timeout = _CLIENT_TIMEOUT
    server_version = "django-delayq"
    sys_version = ""

    def __init__(self, paths: Mapping[str, Callable[[], Answer]], *args: Any) -> None:
        self._paths = paths
        super().__init__(*args)

    def do_GET(self) -> None:  # noqa: N802 - the name that the base class calls
        """Answer a GET request."""
        answer = self._answer(self.path.partition("?")[0])
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_HEAD = do_GET  # noqa: N815 - as above

    def _answer(self, path: str) -> Answer:
        make = self._paths.get(path)
        if make is None:
            return Answer(HTTPStatus.NOT_FOUND, f"There are {', '.join(self._paths)}.\n".encode())
        try:
            return make()
        except StoreError as error:
            return _probe([str(error)])

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a probe comes every few seconds."""
