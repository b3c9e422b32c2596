"""What both commands share: check the server, set up logging, install signals, run services to their end."""

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
from django_delayq.log import logger
from django_delayq.processes.emitter import emitter
from django_delayq.processes.fork_safety import install_signal_handler
from django_delayq.processes.reporter import ProcessReporter, reporting
from django_delayq.processes.service import Service
from django_delayq.processes.shutdown import Shutdown
from django_delayq.signals import LogFormatter
from django_delayq.store.store import Store, get_store


class ServiceDied(CommandError):
    """A service of this process ended by an error, so the process has ended as a whole."""


def add_backend(parser: CommandParser) -> None:
    """Take --backend."""
    text = "An alias in TASKS with a store of its own. Default: the store of DELAYQ."
    parser.add_argument("--backend", metavar="ALIAS", help=text)


def add_setting_options(parser: CommandParser, part: type[Any]) -> None:
    """Take the options that replace settings of this part of Config: --concurrency for CONCURRENCY."""
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
    """Return Config, or that of an alias's store. Raises CommandError for settings that cannot work."""
    try:
        return get_store(backend).config
    except ImproperlyConfigured as error:
        raise CommandError(str(error)) from error


def open_store(backend: str | None = None, *, force_shards: bool = False) -> tuple[Config, Store]:
    """Return Config and Store, of DELAYQ or an alias, with the server's version, eviction policy and shards checked.

    Raises CommandError for what will not mend itself. A Redis that is away, or refuses the password (somebody may be
    changing it just now), is waited for by the loops.
    """
    try:
        store = get_store(backend)
        warning = store.check_server()
        store.check_shards(force=force_shards)
    except (ImproperlyConfigured, StoreError) as error:
        if isinstance(error, StoreUnavailable | StoreAuthError):
            if isinstance(error, StoreAuthError):
                # Unlike an outage this may never end by itself: whoever reads it needs to know what to change.
                logger.warning(
                    "%s. Waiting until that is mended: see the user and password in %s, and the user's rule "
                    "(manage.py delayq_acl).",
                    error,
                    store.config.redis.setting,
                )
            return store.config, store
        raise CommandError(str(error)) from error
    if warning:
        logger.warning(warning)
    return store.config, store


def show_log(verbosity: int) -> None:
    """Print the log to standard error where the project has not said where it goes."""
    named = logger.logger
    if not named.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(message)s"))
        named.addHandler(handler)
        if named.level == logging.NOTSET:
            named.setLevel({0: logging.ERROR, 1: logging.INFO}.get(verbosity, logging.DEBUG))


def say(command: BaseCommand, sentence: str, options: dict[str, Any]) -> None:
    """Print what the command does now, also into a pipe or file at once."""
    if options["verbosity"]:
        command.stdout.write(sentence)
        command.stdout.flush()


def run_services(
    services: Sequence[Service],
    presences: Sequence[ProcessReporter],
    *,
    ready: Callable[[], object] = lambda: None,
    shutdown: Shutdown | None = None,
) -> None:
    """Run each service in a thread of its own, until they end or a signal stops them.

    Only once signals are heard, `ready` is called and the presences report: who sees a process may stop it. Raises
    ServiceDied for a service that ended by an error, once all have: no supervisor would see that a shard has none.
    """
    # What was imported stays: the garbage collector need not look at it again for every few thousand jobs, which was a
    # tenth of what a short job costs.
    gc.collect()
    gc.freeze()
    shutdown, running = shutdown or Shutdown(), set(services)

    def stop(*_: Any) -> None:
        # A receiver may hang: services that wait for room behind it could not end.
        emitter.lift_limit()
        for service in services:
            service.stop()

    def run(service: Service) -> None:
        try:
            service.run()
        finally:
            if service.error is not None:
                stop()
            running.discard(service)
            shutdown.wake()

    with _signals(stop, shutdown.wake_descriptor), reporting(presences, patience=lambda: shutdown.patience):
        ready()
        for service in services:
            threading.Thread(target=run, args=[service], name=service.name, daemon=True).start()
        while running and shutdown.wait():
            pass
    for service in list(running):
        logger.warning("%s has not ended in time; its unfinished jobs run again when their leases lapse", service.name)
    for service in services:
        if service.error is not None:
            died = f"Ended because the thread of {service.name} died: {service.error!r}"
            raise ServiceDied(died) from service.error


@contextlib.contextmanager
def _signals(stop: Callable[..., None], wake: int) -> Iterator[None]:
    """Let SIGTERM and SIGINT stop the services; elsewhere than in the main thread (the reloader's) nothing is changed.

    Python runs a handler between bytecodes: a signal that arrives just before select() would not end it, and the stop
    would wait for the services, which know of none. The interpreter's own C handler writes to the descriptor.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    install_signal_handler(stop)
    descriptor = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    try:
        yield
    finally:
        # The handlers stay. The process takes its leave next, and one more signal must not kill it over that.
        signal.set_wakeup_fd(descriptor)


def stop_with_parent(services: Sequence[Service]) -> None:
    """Stop the services when the process that started this one has ended, which standard input tells."""

    def watch() -> None:
        # Not sys.stdin: its buffer would be locked by this thread when the interpreter ends, which is fatal there.
        while os.read(sys.stdin.fileno(), 4096):
            pass
        for service in services:
            service.stop()

    threading.Thread(target=watch, name="delayq-parent", daemon=True).start()
