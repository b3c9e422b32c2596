"""Runserver: runs jobs inside the child process of Django's runserver, so that one terminal is enough.

The reloader ends that process at each change of the code. Running jobs have GRACE to end, as when a worker stops. At
Ctrl-C they are given back, and no attempt is counted: the parent process kills this one a quarter of a second later.
"""

import atexit
import threading
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError
from django.utils import autoreload

from django_delayq.conf.settings import is_debug, raw_setting, separate_aliases
from django_delayq.logs import logger
from django_delayq.management.serving import Served, dispatchers, workers
from django_delayq.management.starting import log_to_stderr, open_store, run_services
from django_delayq.middleware.chain import get_chain
from django_delayq.processes.service import Service
from django_delayq.processes.shutdown import Shutdown
from django_delayq.worker.pools.recovery import RecoveryRunner
from django_delayq.worker.pools.threads import ThreadPool

#: Seconds after which the terminal shows what the process waits for.
_SOON = 0.5


class JobsInRunserver:
    """A dispatcher and a worker for each store of the project, in threads of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._services: list[Service] = []
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="delayq-runserver", daemon=True)

    def start(self) -> None:
        """Start once all apps are ready."""
        atexit.register(self.stop, at_once=True)
        autoreload.file_changed.connect(self._on_file_changed)
        self._thread.start()

    def stop(self, *, at_once: bool = False) -> None:
        """Claim no more jobs, and wait until those that run have ended or GRACE is over; `at_once` gives them back."""
        with self._lock:
            self._stopped, services = True, self._services
        for service in services:
            service.stop()
            if at_once:
                service.stop()
        self._thread.join(_SOON)
        if self._thread.is_alive():
            logger.info("The running jobs end first, within GRACE")
            self._thread.join()

    def _on_file_changed(self, file_path: Path, **_: Any) -> None:
        # A receiver may have handled another file, such as a template. Then no reload follows.
        if file_path.suffix == ".py":
            self.stop()

    def _run(self) -> None:
        apps.ready_event.wait()
        if not is_debug():
            logger.warning("RUN_IN_RUNSERVER does nothing, because DEBUG is off: start run_dispatcher and run_worker")
            return
        log_to_stderr(1)
        try:
            shutdown = Shutdown()
            served = [each for alias in _aliases() for each in _serve(alias, shutdown)]
            services = [service for each in served for service in each.services]
            with self._lock:
                self._services = services
                if self._stopped:
                    return
            logger.info("Jobs run inside runserver (RUN_IN_RUNSERVER)")
            reporters = [reporter for each in served for reporter in each.reporters]
            run_services(services, reporters, shutdown=shutdown)
        except (CommandError, ImproperlyConfigured) as error:
            logger.error("Jobs do not run inside runserver: %s", error)


def _aliases() -> list[str | None]:
    """Return the aliases of all stores; None stands for the store of DELAYQ."""
    return [*([None] if raw_setting() is not None else []), *separate_aliases()]


def _serve(alias: str | None, shutdown: Shutdown) -> list[Served]:
    get_chain(alias)
    store = open_store(alias)
    config = store.config.worker
    pool = ThreadPool(config.concurrency, recovery=RecoveryRunner())
    return [dispatchers(store), workers(store, config, pool, shutdown)]
