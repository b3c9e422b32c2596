"""Monitored: what a command that serves tells monitoring: `--http`, and the notifications to systemd."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_delayq.clock import SECOND_US
from django_delayq.monitoring.pulse import Pulse
from django_delayq.monitoring.systemd import Systemd
from django_delayq.processes.service import Service
from django_delayq.store.store import Store

if TYPE_CHECKING:
    from django_delayq.monitoring.http_server import MonitoringServer

#: Seconds after which a loop counts as stuck, at least. No call of Redis takes as long.
_PATIENCE = 30.0


def add_http(parser: CommandParser) -> None:
    """Add --http."""
    text = "Answer /metrics, /stats.json, /live and /ready there, without a login: --http 127.0.0.1:9180."
    parser.add_argument("--http", metavar="HOST:PORT", help=text)


@contextmanager
def monitored(
    command: BaseCommand, store: Store, services: Sequence[Service], options: dict[str, Any]
) -> Iterator[Systemd]:
    """Serve --http and tell systemd that the process is alive, as long as its loops go on. Raises CommandError."""
    pulse = Pulse(services, patience=max(_PATIENCE, store.config.worker.lease_us / SECOND_US))
    server = None
    if options["http"]:
        server = _listen(options["http"], store, pulse)
        server.start()
        if options["verbosity"]:
            command.stdout.write(f"Monitoring at http://{server.address}/metrics")
    try:
        with watched(lambda: not pulse.stuck) as systemd:
            yield systemd
    finally:
        if server is not None:
            server.close()


@contextmanager
def watched(is_alive: Callable[[], bool] = lambda: True) -> Iterator[Systemd]:
    """Tell systemd that this process is alive, as long as it is."""
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
