"""manage.py run_worker: run jobs that are ready."""

import argparse
import os
from dataclasses import replace
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import autoreload

from django_delayq.clock import SECOND_US
from django_delayq.conf.config import Config, WorkerConfig, longest_wait_us
from django_delayq.dispatcher import Dispatcher
from django_delayq.management.pool_options import POOLS, check_pool, make_pool
from django_delayq.management.starting import (
    ServiceDied,
    add_backend,
    open_store,
    read_settings,
    run_services,
    say,
    show_log,
    stop_with_parent,
)
from django_delayq.metrics import MetricsBuffer
from django_delayq.processes.reporter import ProcessReporter
from django_delayq.processes.service import Service
from django_delayq.processes.shutdown import Shutdown
from django_delayq.processes.supervisor import SupervisedCommand, run_workers, to_backend
from django_delayq.store.store import Store
from django_delayq.worker.pools.base import Pool
from django_delayq.worker.prefetch import PrefetchPolicy
from django_delayq.worker.worker import Worker


class Command(BaseCommand):
    """Run a worker until SIGTERM or SIGINT, or until drained."""

    help = "Runs jobs that are ready, several at once. Any number may run."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the options."""
        add_backend(parser)
        parser.add_argument(
            "--queues",
            help="Names, comma-separated: only these, strictly in this order. Default: all, best first.",
        )
        parser.add_argument("--concurrency", type=int, help="Jobs at once. Default: DELAYQ['CONCURRENCY'].")
        parser.add_argument("--pool", choices=POOLS, default=POOLS[0], help="What runs them. Default: %(default)s.")
        parser.add_argument("--forward-to", help="For --pool forwarder: a function's dotted path, or 'stream'.")
        parser.add_argument("--max-jobs", type=int, help="Jobs after which a process of the pool is replaced.")
        parser.add_argument("--max-memory", type=int, help="MiB in RAM after which a process of the pool is replaced.")
        parser.add_argument("--processes", type=int, default=1, help="Whole workers, as children of this process.")
        parser.add_argument("--with-dispatcher", action="store_true", help="Start a dispatcher as a child process.")
        parser.add_argument("--drain", action="store_true", help="Run what is due or ready, then exit.")
        parser.add_argument("--reload", action="store_true", help="Start anew when code changes (development).")
        # For our own child processes: they end with the one that started them.
        parser.add_argument("--until-stdin-closes", action="store_true", help=argparse.SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run."""
        show_log(options["verbosity"])
        chosen = _chosen(read_settings(options["backend"]), options)
        check_pool(options)
        if options["processes"] > 1:
            return run_workers(options)
        config, store = open_store(options["backend"])
        if options["reload"]:
            autoreload.run_with_reloader(self._run, Shutdown(), config, store, chosen, options)
            return None
        shutdown = Shutdown()
        try:
            self._run(shutdown, config, store, chosen, options)
        except ServiceDied as error:
            # Not left to the interpreter: it would wait for threads of jobs that were given back.
            self.stderr.write(f"CommandError: {error}")
            shutdown.end_process(code=1)
        return shutdown.end_process()

    def _run(
        self, shutdown: Shutdown, config: Config, store: Store, chosen: WorkerConfig, options: dict[str, Any]
    ) -> None:
        pool = make_pool(options, store, size=chosen.concurrency)
        while self._serve(pool, shutdown, config, store, chosen, options):
            pass

    def _serve(
        self,
        pool: Pool,
        shutdown: Shutdown,
        config: Config,
        store: Store,
        chosen: WorkerConfig,
        options: dict[str, Any],
    ) -> bool:
        """Run one worker a shard to their ends; true where that has to be done again."""
        services: list[Service] = []
        presences: list[ProcessReporter] = []
        sharing: list[PrefetchPolicy] = []
        ended = pool.finished_count
        for shard in store.shards:
            tally = MetricsBuffer()
            worker = Worker(
                shard=shard,
                door=lambda code, shard=shard: store.claims(shard, worker_id=code),  # type: ignore[misc]
                config=chosen,
                pool=pool,
                dispatcher=Dispatcher(shard, store.promotion(shard), tally=tally),
                tally=tally,
                sweep_us=config.dispatcher.sweep_us,
                drain=options["drain"],
                sharing=sharing,
            )
            # A slot that one shard's job leaves is the next shard's chance: every part is woken.
            worker.wake = partial(_wake_all, services)
            worker.given_back = shutdown.given_back
            # What ended during an outage is handed in before its lease can lapse.
            longest_wait = longest_wait_us(chosen.lease_us) / SECOND_US
            services.append(Service(worker, name=f"Worker of {shard.label}", longest_wait=longest_wait))
            presences.append(ProcessReporter(store.process_reports(shard), worker))
        if options["reload"]:
            _stop_before_reload(services)
        if options["until_stdin_closes"]:
            stop_with_parent(services)
        sentence = (
            f"Worker {os.getpid()} serves {', '.join(chosen.queues) or 'all queues'} at {config.redis.display_url}, "
            f"prefix {config.prefix!r}, {chosen.concurrency} at once."
        )
        child = (
            SupervisedCommand("run_dispatcher", *to_backend(options["backend"])) if options["with_dispatcher"] else None
        )
        try:
            run_services(services, presences, ready=partial(say, self, sentence, options), shutdown=shutdown)
        finally:
            if child and shutdown.hurries:
                # It ends by itself, also with this process.
                child.terminate()
            elif child:
                child.stop()
        # A drained shard's worker has ended when another shard's job enqueues into it: drained is a pass without jobs.
        return (
            bool(options["drain"]) and pool.finished_count > ended and not any(service.stopped for service in services)
        )


def _wake_all(services: list[Service]) -> None:
    for service in services:
        service.wake()


def _chosen(config: Config, options: dict[str, Any]) -> WorkerConfig:
    """Return the worker's Config with what the command line says. Raises CommandError."""
    chosen = config.worker
    if options["concurrency"] is not None:
        if not 1 <= options["concurrency"] <= 10_000:
            raise CommandError(f"--concurrency must be 1 to 10,000, got {options['concurrency']}")
        chosen = replace(chosen, concurrency=options["concurrency"])
    if options["queues"] is not None:
        names = [name.strip() for name in options["queues"].split(",")]
        try:
            chosen = replace(chosen, queues=tuple(dict.fromkeys(config.tasks.check_queue(name) for name in names)))
        except ValueError as error:
            raise CommandError(f"--queues: {error}") from error
    return chosen


def _stop_before_reload(services: list[Service]) -> None:
    """Let running jobs end before the reloader ends the process: a reload must not cost an attempt."""

    def stop(**_: Any) -> None:
        for service in services:
            service.stop()
        for service in services:
            service.ended.wait()

    autoreload.file_changed.connect(stop, weak=False)
