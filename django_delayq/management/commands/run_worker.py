"""manage.py run_worker: claim ready jobs and run them."""

import argparse
import os
from functools import partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import autoreload

from django_delayq.conf.config import Config, WorkerConfig
from django_delayq.management.monitored import add_http, run_monitored, watched
from django_delayq.management.pool_options import POOLS, check_pool, make_pool
from django_delayq.management.queue_option import add_queues, with_queues
from django_delayq.management.serving import follow_layout, workers
from django_delayq.management.starting import (
    ServiceDied,
    add_backend,
    add_setting_options,
    log_to_stderr,
    open_store,
    read_settings,
    stop_with_parent,
    with_options,
)
from django_delayq.middleware.chain import get_chain
from django_delayq.processes.service import Service
from django_delayq.processes.shutdown import Shutdown
from django_delayq.processes.supervisor import SupervisedCommand, backend_option, run_workers
from django_delayq.store.store import Store
from django_delayq.worker.pools.base import Pool


class Command(BaseCommand):
    """Run a worker until SIGTERM or SIGINT, or until drained."""

    help = "Runs ready jobs, several at once. Any number of workers may run."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        add_backend(parser)
        add_setting_options(parser, WorkerConfig)
        add_queues(parser)
        add_http(parser)
        parser.add_argument("--pool", choices=POOLS, default=POOLS[0], help="What runs the jobs. Default: %(default)s.")
        parser.add_argument("--forward-to", help="For --pool forwarder: the dotted path of a function, or 'stream'.")
        parser.add_argument("--max-jobs", type=int, help="Jobs after which a process of the pool is replaced.")
        parser.add_argument("--max-memory", type=int, help="MiB in RAM at which a process of the pool is replaced.")
        parser.add_argument("--processes", type=int, default=1, help="Number of whole workers, run as child processes.")
        parser.add_argument("--with-dispatcher", action="store_true", help="Start a dispatcher as a child process.")
        parser.add_argument("--drain", action="store_true", help="Run what is due or ready, then exit.")
        parser.add_argument("--reload", action="store_true", help="Restart when code changes (development).")
        # For our own child processes, which end with their parent.
        parser.add_argument("--until-stdin-closes", action="store_true", help=argparse.SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until stopped or drained."""
        log_to_stderr(options["verbosity"])
        worker_config = _worker_config(read_settings(options["backend"]), options)
        check_pool(options)
        _check_middleware(options["backend"])
        if options["processes"] > 1:
            if options["http"]:
                raise CommandError("--http is of one process: start several run_worker instead of --processes.")
            with watched() as systemd:
                return run_workers(options, ready=systemd.ready, stopping=systemd.stopping)
        store = open_store(options["backend"])
        if options["reload"]:
            autoreload.run_with_reloader(self._run, Shutdown(), store, worker_config, options)
            return None
        shutdown = Shutdown()
        try:
            self._run(shutdown, store, worker_config, options)
        except ServiceDied as error:
            # Not raised: the interpreter would wait for the threads of jobs that were given back.
            self.stderr.write(f"CommandError: {error}")
            shutdown.end_process(code=1)
        return shutdown.end_process()

    def _run(self, shutdown: Shutdown, store: Store, config: WorkerConfig, options: dict[str, Any]) -> None:
        pool = make_pool(options, store, size=config.concurrency)
        finished = -1
        # A job of one shard may enqueue into a shard that is drained already: the end is a pass that runs no job.
        while finished < pool.finished_count:
            finished = pool.finished_count
            try:
                services = self._serve(pool, shutdown, store, config, options)
            except ServiceDied:
                # Exit handlers would wait for child processes.
                pool.close()
                raise
            if not options["drain"] or any(service.stopped for service in services):
                break
        if not shutdown.has_deadline:
            pool.end_processes()

    def _serve(
        self, pool: Pool, shutdown: Shutdown, store: Store, config: WorkerConfig, options: dict[str, Any]
    ) -> list[Service]:
        """Run one worker for each shard until all have ended; return their services."""
        served = workers(store, config, pool, shutdown, drain=options["drain"])
        services, reporters, _ = served
        if options["reload"]:
            _stop_before_reload(services)
        if options["until_stdin_closes"]:
            stop_with_parent(services)
        sentence = (
            f"Worker {os.getpid()} serves {_order(config)} at "
            f"{store.config.redis.display_url}, prefix {store.config.prefix!r}, {config.concurrency} at once."
        )
        child = None
        if options["with_dispatcher"]:
            child = SupervisedCommand("run_dispatcher", *backend_option(options["backend"]))
        try:
            follow = None if options["drain"] else partial(follow_layout, store, served)
            run_monitored(
                *(self, store, services, reporters, options), sentence=sentence, shutdown=shutdown, follow=follow
            )
        finally:
            if child and shutdown.has_deadline:
                # Not waited for: it also ends with this process.
                child.terminate()
            elif child:
                child.stop()
        return services


def _worker_config(config: Config, options: dict[str, Any]) -> WorkerConfig:
    """Return the settings of the worker with what the options replace. Raises CommandError."""
    return with_queues(with_options(config.worker, options), options, tasks=config.tasks)


def _order(worker: WorkerConfig) -> str:
    """Return which queues the worker serves, and in which order or shares."""
    if worker.queue_filter is not None:
        return f"{', '.join(worker.queue_texts)}, best rank first,"
    if worker.weights:
        return f"{', '.join(map('{}={}'.format, worker.queues, worker.weights))}, in these shares,"
    return (
        f"{', '.join(worker.queues)}, in this order," if worker.queues[1:] else "".join(worker.queues) or "all queues"
    )


def _check_middleware(backend: str | None) -> None:
    """Build the middlewares now: an error in one would fail every job. Raises CommandError."""
    try:
        get_chain(backend)
    except ImproperlyConfigured as error:
        raise CommandError(str(error)) from error


def _stop_before_reload(services: list[Service]) -> None:
    """Let running jobs end before the reloader ends the process: a reload must not count an attempt."""

    def stop(**_: Any) -> None:
        for service in services:
            service.stop()
        for service in services:
            service.ended.wait()

    autoreload.file_changed.connect(stop, weak=False)
