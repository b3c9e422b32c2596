"""Starting: what the commands share. Common options, the check of the server, logging, signals, running services."""

import contextlib
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_delayq.conf.config import Config, WorkerConfig
from django_delayq.conf.validators import settings_of
from django_delayq.exceptions import StoreAuthError, StoreError, StoreUnavailable
from django_delayq.logs import TerminalHandler, logger
from django_delayq.processes.emitter import emitter
from django_delayq.processes.fork_safety import install_signal_handler
from django_delayq.processes.reporter import ProcessReporter, reporting
from django_delayq.processes.service import Service
from django_delayq.processes.shutdown import Shutdown
from django_delayq.signals import LogFormatter
from django_delayq.store.growth.layouts import LEARN_EVERY
from django_delayq.store.store import Store, get_store


class ServiceDied(CommandError):
    """A service of this process ended by an error, which ends the process."""


def add_backend(parser: CommandParser) -> None:
    """Add --backend."""
    text = "Alias in TASKS that has a store of its own. Default: the store of DELAYQ."
    parser.add_argument("--backend", metavar="ALIAS", help=text)


def add_setting_options(parser: CommandParser, part: type[Any]) -> None:
    """Add the options that replace settings of this part of Config: --concurrency for CONCURRENCY."""
    for key, field in settings_of(part).items():
        if field.metadata["option"]:
            text = f"{field.metadata['help']} Default: DELAYQ[{key!r}]."
            parser.add_argument(_option(key), type=cast(Any, field.type), help=text)


def with_options(part: WorkerConfig, options: dict[str, Any]) -> WorkerConfig:
    """Return the settings of a worker with what the options replace. Raises CommandError."""
    changes = {}
    for key, field in settings_of(type(part)).items():
        value = options.get(key.lower()) if field.metadata["option"] else None
        if value is not None:
            try:
                changes[field.name] = field.metadata["validate"](_option(key), value)
            except ValueError as error:
                raise CommandError(str(error)) from error
    return replace(part, **changes)


def _option(key: str) -> str:
    return f"--{key.lower().replace('_', '-')}"


def read_settings(backend: str | None = None) -> Config:
    """Return the Config of DELAYQ, or of an alias. Raises CommandError for wrong settings."""
    try:
        return get_store(backend).config
    except ImproperlyConfigured as error:
        raise CommandError(str(error)) from error


def open_store(backend: str | None = None, *, force_shards: bool = False) -> Store:
    """Return the Store of DELAYQ, or of an alias, after checks of every server's version and policy, and of the shards.

    The rules of LIMITS apply from then on. Raises CommandError for faults that persist. If Redis is away, or refuses
    the password (it may be changing just now), the services wait for it. If only some of several servers are away, the
    log names them, and the services of their shards wait.
    """
    try:
        store = get_store(backend)
        check = store.check_servers()
        for refusal in check.fatal():
            raise ImproperlyConfigured(refusal)
        for warning in check.at_start():
            logger.warning(warning)
        with contextlib.suppress(StoreUnavailable):
            # The first shard may be one of those that are away.
            store.check_shards(force=force_shards, shard=next(iter(check.shards), 0))
        store.store_limits(check.shards)
    except (ImproperlyConfigured, StoreError) as error:
        if isinstance(error, StoreUnavailable | StoreAuthError):
            if isinstance(error, StoreAuthError):
                # An outage ends by itself. A refusal may not, so the log names what to change.
                logger.warning(
                    "The process waits until %s, or the server, is corrected. %s",
                    store.config.redis.setting,
                    error,
                )
            return store
        raise CommandError(str(error)) from error
    return store


def log_to_stderr(verbosity: int) -> None:
    """Print the log to standard error unless the project has configured a handler for it."""
    package = logger.logger
    if not package.hasHandlers():
        handler = TerminalHandler()
        handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(message)s"))
        package.addHandler(handler)
        if package.level == logging.NOTSET:
            package.setLevel({0: logging.ERROR, 1: logging.INFO}.get(verbosity, logging.DEBUG))


def announce(command: BaseCommand, sentence: str, options: dict[str, Any]) -> None:
    """Print a sentence unless --verbosity is 0. Flushes, so that a pipe or a file has it at once."""
    if options["verbosity"]:
        command.stdout.write(sentence)
        command.stdout.flush()


def run_services(
    services: Sequence[Service],
    reporters: Sequence[ProcessReporter],
    *,
    ready: Callable[[], object] = lambda: None,
    stopping: Callable[[], object] = lambda: None,
    shutdown: Shutdown | None = None,
    follow: Callable[[], object] | None = None,
) -> None:
    """Run each service in a thread of its own until all have ended or a signal has stopped them.

    `ready` is called and the reporters start after the signal handlers are installed, since whoever sees the process
    may stop it; `stopping` is called when they are stopped. `follow` is called every 15 s; it may add services and
    reporters to the lists. A service that ends by an error stops the others, since no supervisor sees a shard without a
    service; once all have ended, ServiceDied is raised.
    """
    # Imported objects live as long as the process. Each pass of the garbage collector over them cost a tenth of a short
    # job, so it leaves them out.
    gc.collect()
    gc.freeze()
    shutdown, running, stopped = shutdown or Shutdown(), set(services), threading.Event()

    def stop(*_: Any) -> None:
        stopped.set()
        # If a receiver hangs, services that wait for room in the emitter's queue cannot end.
        emitter.lift_limit()
        for service in services:
            service.stop()
        stopping()

    def run(service: Service) -> None:
        try:
            service.run()
        finally:
            if service.error is not None:
                stop()
            running.discard(service)
            shutdown.wake()

    def start(service: Service) -> None:
        threading.Thread(target=run, args=[service], name=service.name, daemon=True).start()

    def watch() -> None:
        while follow is not None and not stopped.wait(LEARN_EVERY):
            known = len(services)
            # In an outage each service has its own line in the log, and serves the shards that are known.
            with contextlib.suppress(StoreError):
                follow()
            for service, reporter in zip(services[known:], reporters[known:], strict=True):
                running.add(service)
                reporter.start()
                start(service)
                logger.info("%s serves a new shard", service.name)
                if stopped.is_set():
                    service.stop()

    with _signals(stop, shutdown.wake_descriptor), reporting(reporters, patience=lambda: shutdown.optional_timeout):
        ready()
        for service in list(services):
            start(service)
        if follow is not None:
            threading.Thread(target=watch, name="delayq-layout", daemon=True).start()
        while running and shutdown.wait():
            pass
    for service in list(running):
        logger.warning("%s did not end in time; its unfinished jobs run again when their leases expire", service.name)
    for service in services:
        if service.error is not None:
            raise ServiceDied(f"Ended because the thread of {service.name} died: {service.error!r}") from service.error


@contextlib.contextmanager
def _signals(stop: Callable[..., None], wake: int) -> Iterator[None]:
    """Stop the services on SIGTERM and SIGINT. Does nothing outside the main thread, as under the reloader.

    Python runs a handler between bytecodes, so a signal that arrives just before select() does not end it. The
    interpreter's C handler writes to the descriptor `wake` and does end it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    install_signal_handler(stop)
    descriptor = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    try:
        yield
    finally:
        # The handlers stay installed: one more signal must not kill the process while it deregisters.
        signal.set_wakeup_fd(descriptor)


def stop_with_parent(services: Sequence[Service]) -> None:
    """Stop the services when the parent process has ended: then standard input is closed."""

    def watch() -> None:
        # Not sys.stdin: this thread would hold the lock of its buffer, and then the interpreter cannot end cleanly.
        while os.read(sys.stdin.fileno(), 4096):
            pass
        for service in services:
            service.stop()

    threading.Thread(target=watch, name="delayq-parent", daemon=True).start()
