"""manage.py delayq_stats: queues, running jobs and processes, or tenants, at one moment, once or again and again."""

import json
import sys
import time
from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import chain, islice
from shutil import get_terminal_size
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_delayq.display.limits import with_declared_values
from django_delayq.job.job import State
from django_delayq.management.operating import (
    FAILED,
    WRONG_OPTIONS,
    OperatingCommand,
    iso,
    missing_facts,
    missing_line,
    progress_bar,
    span,
    to_seconds,
)
from django_delayq.management.tenant_list import read_tenants, tenant_lines
from django_delayq.metrics import ALL_JOBS, Stats, queue_dimension
from django_delayq.store.client.reading import Reading
from django_delayq.store.queries.job_pages import JobRow
from django_delayq.store.queries.lookup import Lookup
from django_delayq.store.queries.shard_reads import ShardReads
from django_delayq.store.queries.snapshot import Process, Snapshot
from django_delayq.store.store import Store
from django_delayq.templatetags.delayq import duration_text

#: Most running jobs that are shown, and that are read to find the longest.
_SHOWN, _READ = 10, 250
#: Most tenants, by default.
_TENANTS = 100
#: Time between two views.
_SHORTEST, _USUAL, _LONGEST = timedelta(milliseconds=500), timedelta(seconds=2), timedelta(days=1)
#: Characters of a progress bar.
_BAR = 20
#: To the first line and column, and from there to the end of the screen: terminals show no empty frame between.
_HOME, _TO_END_OF_LINE, _TO_END = "\x1b[H", "\x1b[K", "\x1b[J"
_COLUMNS = (
    *("queue", "state", "scheduled", "overdue", "ready", "oldest", "running", "workers", "done/h"),
    # Not jobs: "failed" alone counts those that are not tried again.
    "failed attempts/h",
)
#: Few projects have such jobs. The table of queues has a column for each of them only if there were any.
_RARE = ("snoozed", "expired", "dropped", "cancelled")


class Command(OperatingCommand):
    """Print the numbers of the admin's overview, or the tenants of a queue."""

    help = "Shows the queues, the running jobs and the processes, or the tenants of a queue, once or again and again."
    changes = False

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        super().add_arguments(parser)
        text = "Show it again after this time, 500ms to 1d, until Ctrl-C. Default: 2s."
        parser.add_argument("--watch", metavar="SPAN", nargs="?", const=_USUAL, type=_interval, help=text)
        text = "Show in place of all else the tenants of this queue that have waiting jobs or are paused."
        parser.add_argument("--tenants", metavar="QUEUE", help=text)
        parser.add_argument("--limit", type=int, help=f"Most tenants to show; 0 for all. Default: {_TENANTS}.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print one view, or one after the other."""
        if options["limit"] is not None and options["tenants"] is None:
            raise CommandError("--limit needs --tenants", returncode=WRONG_OPTIONS)
        if options["limit"] is not None and options["limit"] < 0:
            raise CommandError(f"--limit must be 0 (all) or more, got {options['limit']}", returncode=WRONG_OPTIONS)
        store, every = self.open(options), options["watch"]
        is_screen = every is not None and not options["json"] and self.stdout.isatty()
        try:
            while True:
                is_incomplete = self._show(store, options, is_screen=is_screen)
                if every is None:
                    if is_incomplete:
                        raise SystemExit(FAILED)
                    return
                time.sleep(every.total_seconds())
        except KeyboardInterrupt:
            self.stdout.write("")

    def _show(self, store: Store, options: dict[str, Any], *, is_screen: bool) -> bool:
        """Print one view; returns whether something is missing in it."""
        reads = store.reads(partial=True)
        facts, lines = self._read(store, options, reads)
        if options["json"]:
            self.stdout.write(json.dumps(facts))
        elif is_screen:
            width, height = get_terminal_size()
            cut = [f"{line[:width]}{_TO_END_OF_LINE}" for line in islice(lines, height - 1)]
            self.stdout.write(_HOME + "\n".join(cut) + _TO_END, ending="")
        else:
            self.stdout.write("".join(f"{line}\n" for line in lines), ending="")
        self.stdout.flush()
        return bool(reads.missing)

    def _read(self, store: Store, options: dict[str, Any], reads: ShardReads) -> tuple[Any, Iterator[str]]:
        """Return what to print, as JSON values and as lines."""
        if options["tenants"] is None:
            facts = _facts(store, reads)
            return facts, _lines(facts)
        [queue] = self.queues({**options, "queues": [options["tenants"]]})
        most = _TENANTS if options["limit"] is None else options["limit"]
        rows, number = read_tenants(queue, most=most, reads=reads)
        if len(rows) < number and not options["json"] and options["watch"] is None:
            self.stderr.write(f"The first {len(rows):,} of {number:,}; --limit 0 shows all.")
        missing = missing_facts(reads)
        return [*rows, *({"missing": each} for each in missing)], chain(map(missing_line, missing), tenant_lines(rows))


def _interval(text: str) -> timedelta:
    """Read the span between two views. Raises ArgumentTypeError."""
    found = span(text)
    # A shorter one would keep Redis and this process busy.
    if not _SHORTEST <= found <= _LONGEST:
        raise ArgumentTypeError(f"{text!r:.80} is out of range: use 500ms to 1d")
    return found


def _facts(store: Store, reads: ShardReads) -> dict[str, Any]:
    snapshot, lease_us = store.snapshot(reads=reads), store.config.worker.lease_us
    hour, alive = snapshot.hour(ALL_JOBS), snapshot.alive(lease_us=lease_us)
    found = reads.read(lambda shard: _read_running(store.lookup(shard))).values()
    rows = [row for of_shard, _ in found for row in of_shard]
    # Their leases are exact, but are not kept by queue. Reports of workers are up to 15 s old.
    exact, is_whole = Counter(row.queue for row in rows), all(has_all for _, has_all in found)
    running = {
        name: exact[name] if is_whole else snapshot.claimed_of(name, lease_us=lease_us) for name in snapshot.queues
    }
    longest = sorted(rows, key=lambda row: row.claimed_us or sys.maxsize)[:_SHOWN]
    return {
        "time": iso(snapshot.now_us),
        "missing": missing_facts(reads),
        "scheduled": snapshot.total.scheduled,
        "ready": snapshot.total.ready,
        "running": snapshot.claimed,
        "failed": snapshot.dead,
        "done_last_hour": hour.done,
        "retried_last_hour": hour.retried,
        "died_last_hour": snapshot.died_last_hour,
        **_rare(hour),
        **_limits(store, snapshot, reads),
        "queues": {name: _queue(snapshot, name, alive, running) for name in snapshot.queues},
        "jobs": [_job(row, snapshot.now_us) for row in longest],
        "processes": [
            {
                "kind": each.kind,
                "name": each.name or each.code.hex(),
                "busy": each.busy,
                "slots": each.slots,
                "quiet": each.quiet,
                "lost": each.is_lost(snapshot.now_us, lease_us=lease_us),
                "silent": round((snapshot.now_us - each.seen_us) / 1_000_000, 1),
            }
            for each in snapshot.processes
        ],
    }


def _read_running(lookup: Lookup) -> Reading[tuple[list[JobRow], bool]]:
    """Return the reading of running jobs of a shard, and of whether these are all."""
    rows: list[JobRow] = []
    cursor, has_more = None, True
    while has_more and len(rows) < _READ:
        page = yield from lookup.read_page(State.CLAIMED, cursor=cursor, count=_READ - len(rows))
        rows += page.rows
        cursor, has_more = page.end, page.end is not None
    return rows, not has_more


def _queue(snapshot: Snapshot, name: str, alive: Sequence[Process], running: Mapping[str, int]) -> dict[str, Any]:
    state, hour = snapshot.queues[name], snapshot.hour(queue_dimension(name))
    oldest = state.oldest_ready_us
    return {
        "scheduled": state.scheduled,
        "overdue": state.overdue,
        "ready": state.ready,
        "oldest": iso(oldest),
        "waited": None if oldest is None else max(0, snapshot.now_us - oldest) / 1_000_000,
        "running": running[name],
        "workers": sum(process.serves(name) for process in alive),
        "done_last_hour": hour.done,
        "failed_attempts_last_hour": hour.failed,
        **_rare(hour),
        "paused_by": state.paused.by if state.paused else None,
        "paused_until": iso(state.paused.until_us) if state.paused else None,
    }


def _rare(hour: Stats) -> dict[str, int]:
    return {f"{name}_last_hour": getattr(hour, name) for name in _RARE}


def _limits(store: Store, snapshot: Snapshot, reads: ShardReads) -> dict[str, Any]:
    """Return the limits and the paused tasks, each only if there are any."""
    paused = snapshot.paused_tasks
    states, waiting = store.limit_states(list(paused), reads=reads)
    limits = {
        name: {
            "running": state.running,
            "waiting": state.waiting,
            "open": None if state.by_value else state.is_open,
            "opens": None if state.by_value else iso(state.opens_us),
            "by_value": state.by_value,
            "backs_off_until": iso(state.backs_off_until_us),
        }
        for name, state in with_declared_values(states).items()
    }
    tasks = {
        name: {"paused_by": pause.by, "paused_at": iso(pause.at_us), "waiting": waiting[name]}
        for name, pause in sorted(paused.items())
    }
    return {**({"limits": limits} if limits else {}), **({"paused_tasks": tasks} if tasks else {})}


def _job(row: JobRow, now_us: int) -> dict[str, Any]:
    ran_us = None if row.claimed_us is None else max(0, now_us - row.claimed_us)
    return {
        "id": row.id,
        "task": row.task,
        "queue": row.queue,
        "attempt": row.attempts.ended + 1,
        "worker": row.worker,
        "seconds": None if ran_us is None else ran_us / 1_000_000,
        "progress": row.progress.fraction if row.progress else None,
        "note": row.progress.note if row.progress else "",
        "stopping": row.stops,
    }


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    yield from map(missing_line, facts["missing"])
    numbers = "  ".join(f"{name} {facts[name]:,}" for name in ("scheduled", "ready", "running", "failed"))
    yield f"{to_seconds(facts['time'])}  {numbers}"
    hour = {"done": "done", "retried": "retried", "died": "failed", **{name: name for name in _RARE}}
    numbers = "  ".join(f"{word} {facts[f'{name}_last_hour']:,}" for name, word in hour.items())
    yield f"{'last hour':20}  {numbers}"
    yield ""
    queues = facts["queues"]
    more = [name for name in _RARE if any(each[f"{name}_last_hour"] for each in queues.values())]
    heads = (*_COLUMNS, *(f"{name}/h" for name in more))
    yield from _table(heads, [_row(name, queue, more) for name, queue in queues.items()])
    for heads, rows in (
        (("limit", "running", "waiting", "next"), _limit_rows(facts)),
        (("paused task", "waiting", "paused by"), _paused_rows(facts)),
    ):
        if rows:
            yield ""
            yield from _table(heads, rows)
    if facts["jobs"]:
        yield ""
        cells = [
            (each["id"], each["task"], str(each["attempt"]), _span(each["seconds"]), each["worker"], _progress(each))
            for each in facts["jobs"]
        ]
        yield from _table(("running job", "task", "attempt", "for", "worker", "progress"), cells)
    yield ""
    processes = [
        (
            each["kind"],
            each["name"],
            "lost" if each["lost"] else "quiet" if each["quiet"] else "",
            f"{each['busy']}/{each['slots']}" if each["slots"] else "",
            f"{_span(each['silent'])} ago",
        )
        for each in facts["processes"]
    ]
    yield from _table(("process", "name", "state", "busy", "seen"), processes)


def _row(name: str, queue: dict[str, Any], rare: Sequence[str]) -> tuple[str, ...]:
    state = "active" if queue["workers"] else "no worker"
    if queue["paused_by"] is not None:
        state = f"paused by {queue['paused_by']}"
        if queue["paused_until"]:
            state += f" until {to_seconds(queue['paused_until'])}"
    numbers = (f"{queue[name]:,}" for name in ("scheduled", "overdue", "ready"))
    names = (
        "running",
        "workers",
        "done_last_hour",
        "failed_attempts_last_hour",
        *(f"{each}_last_hour" for each in rare),
    )
    return (name, state, *numbers, _span(queue["waited"]), *(f"{queue[each]:,}" for each in names))


def _limit_rows(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        (name, f"{each['running']:,}", f"{each['waiting']:,}", _next(each))
        for name, each in facts.get("limits", {}).items()
    ]


def _paused_rows(facts: dict[str, Any]) -> list[tuple[str, ...]]:
    return [
        (name, f"{each['waiting']:,}", f"{each['paused_by']}, {to_seconds(each['paused_at'])}")
        for name, each in facts.get("paused_tasks", {}).items()
    ]


def _next(limit: dict[str, Any]) -> str:
    """Return when the next job may begin."""
    if limit["by_value"]:
        text = "differs by value"
    elif limit["open"]:
        text = "now"
    else:
        text = to_seconds(limit["opens"]) if limit["opens"] else "when a job ends"
    return f"{text}, backs off until {to_seconds(limit['backs_off_until'])}" if limit["backs_off_until"] else text


def _progress(job: dict[str, Any]) -> str:
    words = ["stopping"] if job["stopping"] else []
    if job["progress"] is not None:
        words.append(f"{progress_bar(job['progress'], width=_BAR)} {job['progress']:4.0%} {job['note']}")
    return " ".join(words)


def _span(seconds: float | None) -> str:
    return "" if seconds is None else duration_text(round(seconds * 1_000_000))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    cells = [["".join(c if c.isprintable() else "?" for c in cell) for cell in row] for row in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
