"""manage.py delayq_jobs: list the jobs that match a filter, or show all that is known of some."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from django.core.management.base import CommandError, CommandParser, no_translations

from django_delayq.control.jobs import Jobs
from django_delayq.display.text import printable
from django_delayq.management.job_details import detail_facts, detail_lines, find_job
from django_delayq.management.operating import (
    FAILED,
    NOT_FOUND,
    WRONG_OPTIONS,
    JobsCommand,
    job_facts,
    missing_facts,
    missing_line,
    to_seconds,
)
from django_delayq.store.store import Store


class Command(JobsCommand):
    """Print the jobs that match, one a line, or those that are named, with each attempt."""

    help = "Lists the jobs that match the filters, or counts them. With ids, shows these jobs with their attempts."
    changes = False

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        super().add_arguments(parser)
        parser.add_argument("--limit", type=int, default=100, help="Most jobs to list; 0 for all. Default: 100.")
        parser.add_argument("--count", action="store_true", help="Print only how many match.")

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:
        """Print the jobs."""
        if options["ids"]:
            self._show(options)
            return
        found, store = self.find(options), self.open(options)
        if options["limit"] < 0:
            text = f"--limit must be 0 (all) or more, got {options['limit']}"
            raise CommandError(text, returncode=WRONG_OPTIONS)
        reads = store.reads(partial=True)
        now_us = store.snapshot(reads=reads).now_us
        found, missing = replace(found, shards=reads.answering), missing_facts(reads)
        if options["count"]:
            number = found.count()
            self.print_result(options, f"{number:,}", matched=number, missing=missing)
        else:
            self._list(options, store, found, now_us, missing)
        if missing:
            raise CommandError("\n".join(map(missing_line, missing)), returncode=FAILED)

    def _list(
        self, options: dict[str, Any], store: Store, found: Jobs, now_us: int, missing: Sequence[dict[str, Any]]
    ) -> None:
        """Print the jobs that match; in JSON the last objects say what is missing."""
        rows = found.rows()
        facts = (job_facts(row, store, now_us=now_us) for row in islice(rows, options["limit"] or None))
        shown = self.print_rows(options, facts, lambda each: printable(_line(each)), missing=missing)
        if not options["json"] and shown and shown == options["limit"] and next(rows, None) is not None:
            self.stderr.write(f"The first {shown:,}; --limit 0 lists all, --count counts them.")

    def _show(self, options: dict[str, Any]) -> None:
        """Print what is known of the jobs that are named."""
        filters = [f"--{name.replace('_', '-')}" for name in (*self.filters, "state", "count") if options[name]]
        if filters:
            text = f"Jobs that are named by their ids are shown whole: leave out {', '.join(filters)}."
            raise CommandError(text, returncode=WRONG_OPTIONS)
        store, found = self.open(options), []
        for id in options["ids"]:
            row = find_job(id, store)
            if row is None:
                text = f"There is no job {id!r:.80}: it has ended, or never existed, or the id is incomplete."
                raise CommandError(text, returncode=NOT_FOUND)
            found.append((detail_facts(row, store), row.job))
        if options["json"]:
            self.stdout.write(json.dumps([facts for facts, _ in found], indent=2))
        else:
            self.stdout.write("\n\n".join("\n".join(detail_lines(*each)) for each in found))


def _line(facts: dict[str, Any]) -> str:
    marks = "  overdue" if facts["overdue"] else ""
    if facts["waiting_since"]:
        marks += f"  waits for a worker that can run it ({facts['waiting_for']})"
    elif facts["waiting_for"]:
        marks += f"  waits for {facts['waiting_for']}"
    error = f"  {facts['error']}: {facts['message']:.60}" if facts["error"] else ""
    when = to_seconds(facts["due"]) if facts["due"] else ""
    return f"{facts['id']}  {facts['state']:9}  {when:20}  {facts['queue']}  {facts['call']}{marks}{error}"
