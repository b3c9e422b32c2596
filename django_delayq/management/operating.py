"""Operating: what the commands on jobs and queues share: filters, times, output, questions and exit codes."""

import json
import os
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from django_delayq.clock import moment
from django_delayq.control.jobs import NAMES, Jobs, jobs
from django_delayq.control.queues import Queue, queue
from django_delayq.control.tenants import Tenant
from django_delayq.display.arguments import DisplayedArguments
from django_delayq.display.limits import parked_for
from django_delayq.display.text import read_span, short
from django_delayq.exceptions import DelayQError, DelayValueError, InvalidMoment, UnknownQueue
from django_delayq.job.errors.attempt_error import AttemptError
from django_delayq.job.ids import from_text
from django_delayq.management.starting import add_backend, read_settings
from django_delayq.store.queries.job_pages import JobRow
from django_delayq.store.queries.shard_reads import ShardReads
from django_delayq.store.store import Store, get_store

#: Exit codes. Django's own are 1 for errors, and argparse's is 2 for wrong options.
FAILED, WRONG_OPTIONS, NOT_FOUND, NOT_CONFIRMED, RUNS_ELSEWHERE, JOB_FAILED = 1, 2, 3, 4, 5, 6
EXIT_CODES = (
    "Exit codes: 0 done, 1 an error, 2 wrong options, 3 no such job, queue or schedule, 4 not confirmed, "
    "5 the job runs elsewhere (delayq_run), 6 the job failed (delayq_run)."
)
#: Characters of a progress bar.
_BAR = 30


class OperatingCommand(BaseCommand):
    """A command on the jobs or queues of one store."""

    #: Whether it changes anything: then it takes --yes and --dry-run.
    changes = True

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Show the exit codes at the end of --help."""
        return super().create_parser(prog_name, subcommand, epilog=EXIT_CODES, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options that all of them have."""
        add_backend(parser)
        parser.add_argument("--json", action="store_true", help="Print JSON instead of text.")
        if self.changes:
            parser.add_argument("--yes", action="store_true", help="Do not ask before the change.")
            text = "Change nothing; say what would change."
            parser.add_argument("--dry-run", action="store_true", help=text)

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run the command; errors of this package become sentences. Another exception is a bug, with its traceback."""
        try:
            result = super().execute(*args, **options)
            # Before the interpreter does it, which complains if nobody reads any more.
            self.stdout.flush()
            return result
        except BrokenPipeError:
            # A command that changes something must not look as if it did.
            if self.changes:
                raise
            _discard_output()
            return None
        except UnknownQueue as error:
            raise CommandError(str(error), returncode=NOT_FOUND) from error
        except (DelayValueError, InvalidMoment) as error:
            raise CommandError(str(error), returncode=WRONG_OPTIONS) from error
        except (DelayQError, ImproperlyConfigured) as error:
            raise CommandError(str(error), returncode=FAILED) from error

    def open(self, options: Mapping[str, Any]) -> Store:
        """Return the store of the command."""
        read_settings(options["backend"])
        return get_store(options["backend"])

    def queues(self, options: Mapping[str, Any]) -> list[Queue]:
        """Return the queues that the options name."""
        self.open(options)
        with checked():
            return [queue(name, backend=options["backend"]) for name in options["queues"]]

    def tenants(self, options: Mapping[str, Any]) -> list[Tenant]:
        """Return the tenant that the options name, in each of their queues."""
        found = self.queues(options)
        with checked():
            return [each.tenant(options["tenant"]) for each in found]

    def change_tenants(
        self,
        verb: tuple[str, str],
        options: Mapping[str, Any],
        would_change: Callable[[Tenant], bool],
        change: Callable[[Tenant], bool],
    ) -> None:
        """Change the tenant of each queue, after the question, and print in which; `verb` is "pause", "paused"."""
        found, (present, past) = self.tenants(options), verb
        name, queues = f"tenant {options['tenant']}", ", ".join(each.queue for each in found)
        if options["dry_run"]:
            open_ones = [each.queue for each in found if would_change(each)]
            text = f"Would {present} {name} in {', '.join(open_ones) or 'no queue'}."
            self.print_result(options, text, dry_run=True, changed=0, queues=open_ones)
            return
        self.confirm(f"{present.capitalize()} {name} in {queues}?", options)
        with checked():
            changed = [each.queue for each in found if change(each)]
        text = (
            f"{past.capitalize()} {name} in {', '.join(changed)}." if changed else f"No change for {name} in {queues}."
        )
        self.print_result(options, text, changed=len(changed), queues=changed)

    def print_result(self, options: Mapping[str, Any], text: str, **facts: Any) -> None:
        """Print what was done, as a sentence or as a JSON object."""
        self.stdout.write(json.dumps(facts) if options["json"] else text)

    def print_rows(
        self,
        options: Mapping[str, Any],
        rows: Iterable[dict[str, Any]],
        line: Callable[[dict[str, Any]], str],
        *,
        missing: Sequence[dict[str, Any]],
    ) -> int:
        """Print facts as they come, as lines or as one JSON array; return how many.

        The last objects of the array say what is missing. Nothing is collected: there may be millions.
        """
        count, objects = 0, 0
        for count, row in enumerate(rows, start=1):
            self.stdout.write(("[" if count == 1 else ",") + json.dumps(row) if options["json"] else line(row))
        if options["json"]:
            for objects, each in enumerate(missing, start=count + 1):
                self.stdout.write(("[" if objects == 1 else ",") + json.dumps({"missing": each}))
            self.stdout.write("]" if count or objects else "[]")
        return count

    def confirm(self, question: str, options: Mapping[str, Any]) -> None:
        """Ask before a change, unless --yes is given. Raises CommandError if nobody agrees."""
        if options["yes"]:
            return
        if not sys.stdin.isatty():
            cure = "add --yes to do it, or --dry-run to look"
            text = f"{question} Standard input is no terminal, so nobody can answer: {cure}."
            raise CommandError(text, returncode=NOT_CONFIRMED)
        self.stderr.write(f"{question} [y/N] ", ending="")
        self.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError("Nothing was changed.", returncode=NOT_CONFIRMED)

    @contextmanager
    def progress(self, total: int) -> Iterator[Callable[[int, int], None] | None]:
        """Show a bar on standard error while a long change runs, if that is a terminal."""
        if not self.stderr.isatty() or total <= 0:
            yield None
            return

        def show(changed: int, seen: int) -> None:
            seen = min(seen, total)
            bar = progress_bar(seen / total, width=_BAR)
            self.stderr.write(f"\r{bar} {seen:,} of {total:,}, {changed:,} changed", ending="")
            self.stderr.flush()

        show(0, 0)
        try:
            yield show
        finally:
            self.stderr.write("")


class JobsCommand(OperatingCommand):
    """A command on the jobs that match a filter, or on named ones."""

    #: States that --state takes, and those that the command can change or show.
    states: tuple[str, ...] = ("scheduled", "ready", "running", "failed")
    #: The other filters, as `jobs()` names them.
    filters = ("queue", "task", "error", "due_before")

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the filters, which are those of `jobs()`."""
        parser.add_argument("ids", nargs="*", metavar="ID", help="Jobs by their ids. Default: those of the filters.")
        text = "Only jobs in this state; may be repeated. Default: all that the command is for."
        parser.add_argument("--state", action="append", choices=self.states, help=text)
        parser.add_argument("--queue", metavar="NAME", help="Only jobs of this queue.")
        parser.add_argument("--task", metavar="NAME", help="Only jobs of this task: its name or the end of it.")
        text = "Only jobs whose last attempt ended with this exception: its name or the end of it."
        parser.add_argument("--error", metavar="CLASS", help=text)
        if "failed" not in self.states or len(self.states) > 1:
            text = "Only jobs that are due before this: 10m from now, or a time such as 2027-01-31T08:00."
            parser.add_argument("--due-before", metavar="TIME", type=time_or_span, help=text)
        super().add_arguments(parser)

    def find(self, options: Mapping[str, Any]) -> Jobs:
        """Return the jobs that the options name."""
        self.open(options)
        filters = {name: options[name] for name in self.filters if options.get(name) is not None}
        state = options["state"] or self.states
        if options["ids"]:
            filters["ids"] = options["ids"]
            for text in options["ids"]:
                if from_text(text) is None:
                    raise CommandError(f"{text!r:.80} is not the id of a job.", returncode=NOT_FOUND)
        with checked():
            found = jobs(state=state, backend=options["backend"], **filters)
        if self.changes and not filters and not options["state"] and not options.get("all"):
            raise CommandError("Name jobs by their ids or by a filter, or add --all.", returncode=WRONG_OPTIONS)
        return found

    def change(self, verb: tuple[str, str], options: Mapping[str, Any], run: Callable[[Jobs, Any], int]) -> None:
        """Ask, change the jobs that match, and print how many; `verb` is "cancel", "cancelled"."""
        found = self.find(options)
        matched = found.count()
        if options["ids"] and not matched:
            which = f"{len(options['ids'])} jobs" if len(options["ids"]) > 1 else f"job {options['ids'][0]}"
            raise CommandError(
                f"None to {verb[0]}: {which} not found, or not {_or(self.states)}.", returncode=NOT_FOUND
            )
        if options["dry_run"]:
            self.print_result(options, f"Would {verb[0]} {matched:,}.", dry_run=True, matched=matched, changed=0)
            return
        if matched:
            self.confirm(f"{verb[0].capitalize()} {matched:,} {'job' if matched == 1 else 'jobs'}?", options)
        with self.progress(matched) as progress:
            changed = run(found, progress) if matched else 0
        left = f"; {matched - changed:,} changed meanwhile or were refused" if changed < matched else ""
        text = f"{verb[1].capitalize()} {changed:,}{left}."
        self.print_result(options, text, matched=matched, changed=changed)


def _discard_output() -> None:
    """Let the interpreter flush what nobody reads, as after `| head -1`, without an error."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(null, stream.fileno())
    os.close(null)


@contextmanager
def checked() -> Iterator[None]:
    """Turn an error about an argument into that of an option."""
    try:
        yield
    except UnknownQueue:
        raise
    except (ValueError, TypeError) as error:
        raise CommandError(str(error), returncode=WRONG_OPTIONS) from error


def add_all(parser: CommandParser, what: str) -> None:
    """Add --all, without which a command that changes jobs needs a filter."""
    parser.add_argument("--all", action="store_true", help=f"All {what}, if no filter is given.")


def add_tenant(parser: CommandParser) -> None:
    """Add --tenant."""
    parser.add_argument("--tenant", metavar="NAME", help="Only the jobs of this tenant; the queue must be fair.")


def time_or_span(text: str) -> datetime | timedelta:
    """Read "10m", "1h30m", or a time in ISO 8601, by default in the current time zone. Raises ArgumentTypeError."""
    try:
        found = parse_datetime(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r:.80} is not in the calendar: {error}") from error
    if found is not None:
        return found if timezone.is_aware(found) else timezone.make_aware(found)
    return span(text, or_write=", or 2027-01-31T08:00 for a moment")


def span(text: str, *, or_write: str = "") -> timedelta:
    """Read "10m" or "1h30m" as `read_span()` does. Raises ArgumentTypeError.

    `or_write` ends the cure of an option that takes more than spans.
    """
    try:
        return read_span(text, or_write=or_write)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def job_facts(row: JobRow, store: Store, *, now_us: int) -> dict[str, Any]:
    """Return what the commands show of one job, as JSON has it. Sensitive arguments are hidden."""
    error = AttemptError.last_of(row.attempts)
    return {
        "id": row.id,
        "state": NAMES.get(row.state, row.state.value),
        "task": row.task,
        "queue": row.queue,
        "call": call_text(row, store),
        "due": iso(row.due_us),
        "expires": iso(row.expires_us),
        "overdue": row.is_overdue(now_us),
        "waiting_for": row.waiting_for or parked_for(row, store.config.admin.redact) or None,
        "waiting_since": iso(row.attempts.waiting_since_us) if row.waiting_for else None,
        "priority": row.head.priority,
        "attempts": row.attempts.ended,
        "error": error.name,
        "message": error.message,
        "worker": row.worker,
    }


def missing_facts(reads: ShardReads) -> list[dict[str, Any]]:
    """Return the servers that did not answer as JSON has them."""
    return [{"server": each.server, "shards": list(each.shards), "error": str(each.error)} for each in reads.missing]


def missing_line(facts: Mapping[str, Any]) -> str:
    """Return one of `missing_facts()` as a sentence."""
    numbers = ", ".join(map(str, facts["shards"]))
    shards = f"its shards {numbers} have" if len(facts["shards"]) > 1 else f"its shard {numbers} has"
    return f"INCOMPLETE: {facts['server']} does not answer, so what {shards} is missing here. {facts['error']}"


def progress_bar(fraction: float, *, width: int) -> str:
    """Return a bar of `width` characters in brackets. `fraction` is from 0 to 1."""
    return f"[{'#' * int(fraction * width):{width}}]"


def iso(us: int | None) -> str | None:
    """Return a moment (µs since the epoch) in ISO 8601, in UTC."""
    return None if us is None else moment(us).isoformat()


def to_seconds(moment_text: str) -> str:
    """Return a text of `iso()` in whole seconds, ending in Z: the options of the commands take other time zones."""
    return f"{moment_text[:19]}Z"


def call_text(row: JobRow, store: Store) -> str:
    """Return the call of a job in one line, with hidden values replaced."""
    if row.job is None:
        return f"{short(row.task)}(…)"
    return DisplayedArguments.of(row.job, store.config.admin.redact).line()


def _or(names: tuple[str, ...]) -> str:
    return " or ".join(names)
