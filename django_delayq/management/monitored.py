"""Monitored: runs the services of a command that answers `--http` and notifies systemd."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_delayq.clock import SECOND_US
from django_delayq.management.starting import announce, run_services
from django_delayq.monitoring.pulse import Pulse
from django_delayq.monitoring.systemd import Systemd
from django_delayq.processes.reporter import ProcessReporter
from django_delayq.processes.service import Service
from django_delayq.processes.shutdown import Shutdown
from django_delayq.store.store import Store

if TYPE_CHECKING:
    from django_delayq.monitoring.http_server import MonitoringServer

#: Seconds after which a loop counts as stuck, at least. A step makes a few calls of Redis, each of which ends earlier.
_PATIENCE = 30.0


def add_http(parser: CommandParser) -> None:
    """Add --http."""
    text = "Answer /metrics, /stats.json, /live and /ready there, without a login: --http 127.0.0.1:9180."
    parser.add_argument("--http", metavar="HOST:PORT", help=text)


def run_monitored(
    command: BaseCommand,
    store: Store,
    services: Sequence[Service],
    reporters: Sequence[ProcessReporter],
    options: dict[str, Any],
    *,
    sentence: str,
    shutdown: Shutdown | None = None,
    follow: Callable[[], object] | None = None,
) -> None:
    """Run services as `run_services()` does; answer --http and notify systemd meanwhile. Raises CommandError.

    `sentence` is printed when they run.
    """
    pulse = Pulse(services, patience=max(_PATIENCE, store.config.worker.lease_us / SECOND_US))
    server = None
    if options["http"]:
        server = _listen(options["http"], store, pulse)
        server.start()
        if options["verbosity"]:
            command.stdout.write(f"Monitoring at http://{server.address}/metrics")

    try:
        with watched(lambda: not pulse.stuck) as systemd:

            def ready() -> None:
                announce(command, sentence, options)
                systemd.ready()

            stopping = systemd.stopping
            run_services(services, reporters, ready=ready, stopping=stopping, shutdown=shutdown, follow=follow)
    finally:
        if server is not None:
            server.close()


@contextmanager
def watched(is_alive: Callable[[], bool] = lambda: True) -> Iterator[Systemd]:
    """Notify systemd that this process is alive, as long as it is."""
    systemd, ended = Systemd(), threading.Event()

    def watch() -> None:
        while not ended.wait(systemd.watchdog / 2):
            if is_alive():
                systemd.alive()

    if systemd.watchdog:
        threading.Thread(target=watch, name="delayq-watchdog", daemon=True).start()
    try:
        yield systemd
    finally:
        ended.set()


def _listen(text: str, store: Store, pulse: Pulse) -> "MonitoringServer":
    # Imported when used: it would add a third to the start of each worker.
    from django_delayq.monitoring.http_server import MonitoringServer

    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) < 2**16):
        raise CommandError(f"--http must be a host and a port, such as 127.0.0.1:9180, got {text!r}.")
    try:
        return MonitoringServer(host.strip("[]"), int(port), store=store, pulse=pulse)
    except OSError as error:
        raise CommandError(f"--http cannot listen on {text}: {error}. Choose another port.") from error
