"""manage.py run_dispatcher: move due jobs to their queues on time, and take back what dead workers held."""

import argparse
import os
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from django_delayq.dispatcher import Dispatcher
from django_delayq.management.starting import add_backend, open_store, run_services, say, show_log, stop_with_parent
from django_delayq.processes.reporter import ProcessReporter
from django_delayq.processes.service import Service


class Command(BaseCommand):
    """Run the dispatcher until SIGTERM or SIGINT."""

    help = "Moves delayed jobs to their queues when they are due. Any number may run."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the options."""
        add_backend(parser)
        force = "Accept a changed SHARDS although keyed jobs still wait."
        parser.add_argument("--force-shards", action="store_true", help=force)
        # For our own child processes: they end with the one that started them.
        parser.add_argument("--until-stdin-closes", action="store_true", help=argparse.SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run."""
        show_log(options["verbosity"])
        config, store = open_store(options["backend"], force_shards=options["force_shards"])
        dispatchers = {shard: Dispatcher(shard, store.promotion(shard)) for shard in store.shards}
        services = [Service(part, name=f"Dispatcher of {shard.label}") for shard, part in dispatchers.items()]
        if options["until_stdin_closes"]:
            stop_with_parent(services)
        sentence = f"Dispatcher {os.getpid()} serves {config.redis.display_url}, prefix {config.prefix!r}."
        presences = [
            ProcessReporter(store.process_reports(shard), dispatcher) for shard, dispatcher in dispatchers.items()
        ]
        run_services(services, presences, ready=partial(say, self, sentence, options))
