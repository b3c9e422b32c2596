"""manage.py run_dispatcher: move due jobs to their queues, and reclaim the jobs of dead workers."""

import argparse
import os
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from django_delayq.management.monitored import add_http, run_monitored
from django_delayq.management.serving import dispatchers, follow_layout
from django_delayq.management.starting import (
    add_backend,
    log_to_stderr,
    open_store,
    stop_with_parent,
)


class Command(BaseCommand):
    """Run the dispatcher until SIGTERM or SIGINT."""

    help = "Moves delayed jobs to their queues when they are due. Any number of dispatchers may run."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        add_backend(parser)
        add_http(parser)
        force = "Accept a changed SHARDS although jobs with a key still wait."
        parser.add_argument("--force-shards", action="store_true", help=force)
        # For our own child processes, which end with their parent.
        parser.add_argument("--until-stdin-closes", action="store_true", help=argparse.SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until stopped."""
        log_to_stderr(options["verbosity"])
        store = open_store(options["backend"], force_shards=options["force_shards"])
        served = dispatchers(store)
        services, reporters, _ = served
        if options["until_stdin_closes"]:
            stop_with_parent(services)
        config = store.config
        sentence = f"Dispatcher {os.getpid()} serves {config.redis.display_url}, prefix {config.prefix!r}."
        follow = partial(follow_layout, store, served)
        run_monitored(self, store, services, reporters, options, sentence=sentence, follow=follow)
