"""manage.py delayq_schedules: list recurring schedules, show or change one, or run a job of it now."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any

from django.core.management.base import CommandError, CommandParser, no_translations

from django_delayq.clock import SECOND_US
from django_delayq.display.arguments import DisplayedArguments
from django_delayq.display.schedules import DisplayedSchedule
from django_delayq.display.text import printable, span_text
from django_delayq.exceptions import UnknownSchedule
from django_delayq.management.operating import (
    FAILED,
    NOT_FOUND,
    WRONG_OPTIONS,
    OperatingCommand,
    iso,
    missing_facts,
    missing_line,
    to_seconds,
)
from django_delayq.recurring.run import Run
from django_delayq.store.queries.job_filter import names_match
from django_delayq.store.schedules.schedule_filter import ScheduleFilter
from django_delayq.store.schedules.stored_schedule import ScheduleState, StoredSchedule, from_text_id
from django_delayq.store.store import Store
from django_delayq.task import registry
from django_delayq.task.recurring.handle import ScheduleHandle

#: Option -> what it does, and what it did.
_ACTIONS = {
    "pause": ("pause", "paused"),
    "resume": ("resume", "resumed"),
    "delete": ("delete", "deleted"),
    "run_now": ("run a job of", "enqueued a job of"),
}


class Command(OperatingCommand):
    """Print the schedules that match, one a line, or one with its outcomes; or change that one."""

    help = "Lists the recurring schedules that match the filters. With a task and a name, shows or changes this one."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        text = "One schedule: the name of its task, or the end of it, and its own name; or its id, as a list shows it."
        parser.add_argument("schedule", nargs="*", metavar="TASK NAME", help=text)
        parser.add_argument("--task", metavar="NAME", help="Only schedules of this task: its name or the end of it.")
        parser.add_argument("--prefix", metavar="TEXT", help="Only schedules whose names begin so.")
        states = [state.value for state in ScheduleState]
        parser.add_argument("--state", choices=states, help="Only schedules in this state.")
        parser.add_argument("--limit", type=int, default=100, help="Most schedules to list; 0 for all. Default: 100.")
        parser.add_argument("--count", action="store_true", help="Print only how many match.")
        actions = parser.add_mutually_exclusive_group()
        actions.add_argument("--pause", action="store_true", help="Plant no further job; a running one continues.")
        actions.add_argument("--resume", action="store_true", help="Plant jobs again, from the next occurrence on.")
        actions.add_argument("--delete", action="store_true", help="Delete it; a running job continues.")
        text = "Enqueue one more job of it, also if it is paused."
        actions.add_argument("--run-now", action="store_true", help=text)
        super().add_arguments(parser)

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:
        """List, show or change schedules."""
        store, action = self.open(options), next((name for name in _ACTIONS if options[name]), None)
        self.changes = action is not None
        if not options["schedule"]:
            if action is not None:
                text = f"--{action.replace('_', '-')} needs a schedule: name its task and its name, or its id."
                raise CommandError(text, returncode=WRONG_OPTIONS)
            self._list(store, options)
            return
        if filters := [f"--{name}" for name in ("task", "prefix", "state", "count") if options[name]]:
            text = f"One schedule is named: leave out {', '.join(filters)}."
            raise CommandError(text, returncode=WRONG_OPTIONS)
        found = _find(store, options["schedule"])
        if action is not None:
            self._change(found, action, options)
            return
        facts = _details(DisplayedSchedule(found, store.now_us()), store)
        self.stdout.write(json.dumps(facts, indent=2) if options["json"] else "\n".join(_detail_lines(facts)))

    def _list(self, store: Store, options: dict[str, Any]) -> None:
        if options["limit"] < 0:
            text = f"--limit must be 0 (all) or more, got {options['limit']}"
            raise CommandError(text, returncode=WRONG_OPTIONS)
        state = ScheduleState(options["state"]) if options["state"] else None
        wanted = ScheduleFilter(task=options["task"] or "", prefix=options["prefix"] or "", state=state)
        reads = store.reads(partial=True)
        snapshot = store.snapshot(reads=reads)
        shards, now_us = map(store.schedules, reads.answering), snapshot.now_us
        rows = (each for shard in shards for each in shard.scan() if wanted.matches(each, now_us=now_us))
        missing = missing_facts(reads)
        if options["count"]:
            number = sum(1 for _ in rows) if wanted.is_set else snapshot.schedules
            self.print_result(options, f"{number:,}", matched=number, **({"missing": missing} if missing else {}))
        else:
            self._print(options, rows, now_us, missing)
        if missing:
            raise CommandError("\n".join(map(missing_line, missing)), returncode=FAILED)

    def _print(
        self, options: dict[str, Any], rows: Iterator[StoredSchedule], now_us: int, missing: Sequence[dict[str, Any]]
    ) -> None:
        """Print the schedules that match; in JSON the last objects say what is missing."""
        found: Iterable[StoredSchedule] = rows
        if options["limit"]:
            # Redis keeps them in no order.
            found = sorted(islice(rows, options["limit"]), key=attrgetter("sort_key"))
        facts = (_facts(DisplayedSchedule(row, now_us)) for row in found)
        shown = self.print_rows(options, facts, _line, missing=missing)
        if not options["json"] and shown and shown == options["limit"] and next(rows, None) is not None:
            self.stderr.write(f"These are {shown:,} of them; --limit 0 lists all, --count counts them.")

    def _change(self, stored: StoredSchedule, action: str, options: dict[str, Any]) -> None:
        (verb, done), handle = _ACTIONS[action], ScheduleHandle(stored, options["backend"])
        name = f"schedule {printable(stored.full_name)}"
        if action == "delete" and stored.is_declared:
            text = f"{name.capitalize()} is declared in code: delete it there, or pause it."
            raise CommandError(text, returncode=WRONG_OPTIONS)
        if options["dry_run"]:
            self.print_result(options, f"Would {verb} {name}.", dry_run=True, changed=0, id=stored.text_id)
            return
        self.confirm(f"{verb.capitalize()} {name}?", options)
        try:
            result = getattr(handle, action)()
        except UnknownSchedule as error:
            raise CommandError(str(error), returncode=NOT_FOUND) from error
        job = {"job": result.id} if action == "run_now" else {}
        text = f"{done.capitalize()} {name}{f': {result.id}' if job else ''}." if result else f"No change for {name}."
        self.print_result(options, text, changed=int(bool(result)), id=stored.text_id, **job)


def _find(store: Store, named: list[str]) -> StoredSchedule:
    """Return the schedule that the command line names. Raises CommandError."""
    if len(named) > 2:
        text = "Name one schedule: its task and its name, or its id. Quote a name that has spaces."
        raise CommandError(text, returncode=WRONG_OPTIONS)
    if len(named) == 1:
        name = named[0]
        if from_text_id(name) is None:
            text = f"{name!r:.80} is not the id of a schedule. Give a task and a name, or an id as a list shows it."
            raise CommandError(text, returncode=WRONG_OPTIONS)
        found = list(filter(None, [store.find_schedule(name)]))
    else:
        # Its task may be known to other processes alone.
        tasks = {named[0], *(each for each in registry.names() if names_match(each, named[0]))}
        found = store.find_schedules(tasks, named[1])
        name = f"{named[1]!r:.80} of the task {named[0]!r:.200}"
        if len(tasks) == 1 and not registry.find(named[0]):
            name += ", and this code has no such task: give its whole name, or an id, as a list shows it"
    if len(found) > 1:
        names = sorted(printable(stored.full_name) for stored in found)
        text = f"Several tasks end with {named[0]!r:.80} and have this schedule: {', '.join(names)}."
        raise CommandError(text, returncode=WRONG_OPTIONS)
    if not found:
        raise CommandError(f"There is no schedule {name}.", returncode=NOT_FOUND)
    return found[0]


def _facts(shown: DisplayedSchedule) -> dict[str, Any]:
    """Return what the list shows of a schedule, as JSON has it."""
    stored = shown.stored
    definition, record = stored.definition, stored.record
    return {
        "id": stored.text_id,
        "task": definition.job.task if definition else None,
        "name": definition.schedule.name if definition else None,
        "rule": shown.rule or None,
        "state": shown.state.value,
        "fault": shown.fault or None,
        "next": iso(shown.next_us),
        "paused": stored.is_paused,
        "paused_by_failures": shown.paused_by_failures,
        "declared": stored.is_declared,
        "failures": record.failures,
        "last": _run_facts(stored.runs[0]) if stored.runs else None,
        "last_ended": iso(record.last_end_us) if record.last_end_us else None,
        "job": stored.waiting_id,
        "running": stored.running_id,
    }


def _details(shown: DisplayedSchedule, store: Store) -> dict[str, Any]:
    """Return all that is known of a schedule, as JSON has it. Sensitive arguments are hidden."""
    facts = _facts(shown)
    facts |= {"pause_after": shown.stored.record.pause_after or None}
    if definition := shown.stored.definition:
        schedule, job = definition.schedule, definition.job
        facts |= {
            "overlap": schedule.overlap,
            "catch_up": schedule.catch_up,
            "window": None if schedule.window_us is None else schedule.window_us / SECOND_US,
            "jitter": schedule.jitter_us / SECOND_US,
            "start": iso(schedule.start_us),
            "end": iso(schedule.end_us),
            "queue": job.queue,
            "call": DisplayedArguments.of(job, store.config.admin.redact).line(),
            "upcoming": [iso(us) for us in shown.upcoming],
        }
    return facts | {"runs": [_run_facts(run) for run in shown.stored.runs]}


def _run_facts(run: Run) -> dict[str, Any]:
    return {"outcome": run.outcome.name.lower(), "took": run.took_ms / 1_000 if run.has_begun else None}


def _line(facts: dict[str, Any]) -> str:
    when = to_seconds(facts["next"]) if facts["next"] else "-"
    what = f"{facts['task']}  {facts['name']}  {facts['rule']}" if facts["task"] else facts["id"]
    last = f"  last {_run_text(facts['last'])}" if facts["last"] else ""
    failures = f"  {facts['failures']:,} failed in a row" if facts["failures"] else ""
    fault = f"  {facts['fault']}" if facts["fault"] else ""
    return printable(f"{facts['state']:10}  {when:20}  {what}{last}{failures}{fault}")


def _run_text(run: dict[str, Any]) -> str:
    return run["outcome"] if run["took"] is None else f"{run['outcome']} in {span_text(round(run['took'] * SECOND_US))}"


def _detail_lines(facts: dict[str, Any]) -> Iterator[str]:
    spans = {name: span_text(round(facts[name] * SECOND_US)) for name in ("window", "jitter") if facts.get(name)}
    texts = facts | spans | {"last": None, "next": None if facts.get("upcoming") else facts["next"]}
    for name, value in texts.items():
        if name not in ("runs", "upcoming") and value not in (None, "", False, 0):
            yield f"{name:18} {'yes' if value is True else printable(str(value))}"
    label = "next if resumed" if facts["paused"] else "next"
    for moment in facts.get("upcoming", ()):
        yield f"{label:18} {to_seconds(moment)}"
    for number, run in enumerate(facts["runs"]):
        yield f"{'run before' if number else 'last run':18} {_run_text(run)}"
