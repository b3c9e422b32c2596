"""What both commands share: check the server, set up logging, install signals, run services to their end."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

from django_delayq.conf import get_config
from django_delayq.config import Config
from django_delayq.exceptions import StoreError, StoreUnavailable
from django_delayq.service import Service
from django_delayq.store.store import Store, get_store


def open_store(*, force_shards: bool = False) -> tuple[Config, Store]:
    """Return Config and Store, with the server's version, eviction policy and shards checked.

    Raises CommandError for what will not mend itself. A Redis that is away is waited for by the loops.
    """
    try:
        config, store = get_config(), get_store()
        warning = store.check_server()
        store.check_shards(force=force_shards)
    except (ImproperlyConfigured, StoreError) as error:
        if isinstance(error, StoreUnavailable):
            return get_config(), get_store()
        raise CommandError(str(error)) from error
    if warning:
        logging.getLogger("django_delayq").warning(warning)
    return config, store


def show_log(verbosity: int) -> None:
    """Print the log to standard error where the project has not said where it goes."""
    logger = logging.getLogger("django_delayq")
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        logger.addHandler(handler)
        if logger.level == logging.NOTSET:
            logger.setLevel({0: logging.ERROR, 1: logging.INFO}.get(verbosity, logging.DEBUG))


def run_services(services: Sequence[Service]) -> None:
    """Run each service, one in this thread or all in threads of their own, until they end or a signal stops them."""

    def stop(*_: Any) -> None:
        for service in services:
            service.stop()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
    if len(services) == 1:
        services[0].run()
        return
    threads = [threading.Thread(target=service.run, name=service.name, daemon=True) for service in services]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def end_process() -> None:
    """End at once: a thread whose job was given back must not run on."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
