"""manage.py delayq_inspect: show everything that is known of one job."""

import json
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_delayq.clock import moment
from django_delayq.job.ids import created_us, from_text
from django_delayq.management.operating import NOT_FOUND, OperatingCommand, job_facts
from django_delayq.store.queries.job_pages import JobRow
from django_delayq.store.store import Store


class Command(OperatingCommand):
    """Print one job with its options and attempts."""

    help = "Shows one job: its state, task, options, and each attempt with its error."
    changes = False

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument("id", metavar="ID", help="The id of the job.")
        super().add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the job."""
        store, place = self.open(options), from_text(options["id"])
        row = None
        if place is not None and place[1] < store.config.shards:
            row = store.lookup(place[1]).find(place[0], with_lease=True)
        if row is None or (row.ended and row.result is None):
            text = f"There is no job {options['id']!r:.80}: it has ended, or never existed, or the id is incomplete."
            raise CommandError(text, returncode=NOT_FOUND)
        facts = _facts(row, store)
        self.stdout.write(json.dumps(facts, indent=2) if options["json"] else "\n".join(_lines(facts)))


def _facts(row: JobRow, store: Store) -> dict[str, Any]:
    job = row.job
    limits = {
        "max_attempts": job.retry.max_attempts if job else None,
        "timeout": timedelta(microseconds=job.timeout_us).total_seconds() if job and job.timeout_us else None,
        "key": job.key if job else None,
    }
    return {
        **job_facts(row, store),
        **limits,
        "created": moment(created_us(row.raw_id)).isoformat(),
        "progress": row.progress.fraction if row.progress else None,
        "note": row.progress.note if row.progress else "",
        "stopping": row.stops or None,
        "snoozes": row.attempts.snoozes or None,
        "claimed": moment(row.claimed_us).isoformat() if row.claimed_us else None,
        "lease_end": moment(row.lease_end_us).isoformat() if row.lease_end_us else None,
        "fault": row.fault if row.stored is not None else "",
        "size": row.size,
        "history": [_attempt(entry) for entry in row.attempts.history],
    }


def _attempt(entry: dict[str, Any]) -> dict[str, Any]:
    times = {name: moment(entry[f"{name}_us"]).isoformat() for name in ("started", "ended") if entry.get(f"{name}_us")}
    return {**times, **{name: entry[name] for name in ("worker", "ending", "error") if name in entry}}


def _lines(facts: dict[str, Any]) -> list[str]:
    lines = [f"{name:12} {value}" for name, value in facts.items() if name != "history" and value not in (None, "")]
    for number, entry in enumerate(facts["history"], 1):
        lines.append(
            f"attempt {number}: {entry.get('ending', '?')}, {entry.get('started', '')} on {entry.get('worker', '?')}"
        )
        lines += [f"    {line}" for line in str(entry.get("error", "")).splitlines()]
    return lines
