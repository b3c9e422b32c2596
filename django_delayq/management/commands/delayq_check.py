"""manage.py delayq_check: check the server, every key, and whether waiting jobs will run with this code."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_delayq.clock import estimated_us
from django_delayq.display.text import printable
from django_delayq.exceptions import StoreError, see
from django_delayq.job.outcome import OutcomeKind
from django_delayq.management.preflight import Findings, judge_jobs, judge_layout, judge_schedules
from django_delayq.management.starting import add_backend, read_settings
from django_delayq.monitoring.liveness import check_liveness
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from django_delayq.store.servers.server_check import CheckedServer
from django_delayq.store.shard import Shard
from django_delayq.store.store import Store, get_store

#: Code of an inconsistency -> what it counts, and what --repair does with it.
_DRIFT = {
    "MISTYPED": ("keys of a wrong type", "deleted"),
    "MALFORMED": ("entries or records that no release of django_delayq wrote", "dropped"),
    "MISSING": ("entries or records whose job, or recurring schedule, does not exist", "dropped"),
    "DUPLICATE": ("jobs in two places", "kept in the later state"),
    "MISPLACED": ("jobs in another queue or priority than their body names", "moved to the one it names"),
    "ORPHANED": ("jobs in no place", "made ready; dead letters are listed again"),
    "NO_LEASE": ("running jobs without a lease", "reclaimed, as after an expired lease"),
    "NO_RECORD": ("leases, or slots of limits, whose running job has no record", "recorded"),
    "NO_SLOT": ("running jobs without their slot of a limit", "given the slot"),
    "LIMIT_NOT_LISTED": ("jobs that wait for a limit, which the dispatcher does not know", "listed"),
    "UNREADABLE": ("unreadable bodies in no place", "made dead letters"),
    "QUEUE_NOT_LISTED": ("jobs in a queue that is not listed", "listed"),
    "TENANT_NOT_LISTED": ("waiting jobs that do not count for their tenant", "counted"),
    "NO_TURN": ("tenants whose ready jobs have no turn", "given a turn"),
    "NOT_GROUPED": ("dead letters that no error group counts", "counted"),
    "NOT_PLANNED": ("recurring schedules that nobody plants", "planted"),
    "SCHEDULE_DAMAGED": (
        "recurring schedules whose record is damaged",
        "kept until task.schedules sets or deletes them",
    ),
    "MISCOUNTED": ("wrong sums of the bytes of all dead letters", "recounted"),
    "KEY_NOT_HELD": ("jobs that do not hold their unique key", "given the key"),
}
#: Codes that a repair leaves as they are: a person must decide.
_KEPT = {"SCHEDULE_DAMAGED"}
#: Outcome that an incompatible job would have -> why, and the cure.
_INCOMPATIBLE = {
    OutcomeKind.UNKNOWN_TASK: "no task of that name is registered: keep it, name it in aliases=, add its app to "
    f"INSTALLED_APPS, or give each project a PREFIX of its own. {see('troubleshooting#a-task-is-unknown')}",
    OutcomeKind.ARGUMENTS_MISMATCH: "their arguments do not fit the function: give new parameters a default. "
    f"{see('troubleshooting#the-arguments-do-not-fit')}",
    OutcomeKind.NEWER: "a newer django_delayq stored them: update this one. "
    f"{see('troubleshooting#a-newer-release-stored-the-job')}",
    OutcomeKind.BAD_SIGNATURE: "they are not signed with SECRET_KEY or SECRET_KEY_FALLBACKS. "
    f"{see('troubleshooting#a-signature-is-wrong')}",
    OutcomeKind.UNKNOWN_KEY: f"they are encrypted with a secret that this process lacks. {see('redis/encryption')}",
    OutcomeKind.UNREADABLE: f"their stored body cannot be read. {see('troubleshooting#a-stored-job-cannot-be-read')}",
}
#: Entries or jobs that are listed for each code or reason.
_EXAMPLES = 5
#: Code or reason -> its count and examples.
_Groups = dict[Any, dict[str, Any]]
#: Walks after which a repaired shard must be consistent.
_WALKS = 5


class Command(BaseCommand):
    """Check, and with --repair repair, the Redis that DELAYQ leads to."""

    help = "Checks the Redis server, every key, and whether waiting jobs will run; exits with 1 if anything is wrong."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        add_backend(parser)
        text = (
            "Repair jobs that are missing from the indexes, duplicated in them, or incomplete, and store recurring "
            "schedules again that have an older key."
        )
        only = parser.add_mutually_exclusive_group()
        only.add_argument("--repair", action="store_true", help=text)
        text = "Check only whether somebody promotes, plants and claims, within milliseconds; for probes and monitors."
        only.add_argument("--alive", action="store_true", help=text)
        parser.add_argument("--json", action="store_true", help="Print one JSON object instead of sentences.")

    def execute(self, *args: Any, **options: Any) -> Any:
        """Run the command. A probe leaves the system checks out: they import the URLs of the whole project."""
        return super().execute(*args, **{**options, "skip_checks": options["skip_checks"] or options["alive"]})

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the report. Exits with 1 if anything is wrong."""
        read_settings(options["backend"])
        try:
            store = get_store(options["backend"])
            report = _liveness(store) if options["alive"] else _report(store, repair=options["repair"])
        except StoreError as error:
            if not options["json"]:
                raise CommandError(str(error)) from error
            report = {"faults": [str(error)], "warnings": [], "wrong": True}
        sentences = _liveness_sentences if options["alive"] else _sentences
        self.stdout.write(json.dumps(report, indent=2) if options["json"] else "\n".join(sentences(report)))
        if report["wrong"]:
            raise SystemExit(1)


def _liveness(store: Store) -> dict[str, Any]:
    found = check_liveness(store)
    return {"faults": found.faults, "warnings": [*found.projects, *found.warnings], "wrong": bool(found.faults)}


def _liveness_sentences(report: dict[str, Any]) -> Iterator[str]:
    yield from _findings(report)
    if not report["faults"]:
        yield "Alive: due jobs are promoted, planted and claimed."


def _server_sentence(server: dict[str, Any], *, several: bool) -> str:
    shards = f" with {len(server['shards'])} shards and {server['replicas']} replicas" if several else ""
    return (
        f"{server['kind'].capitalize()} {server['version']} at {server['place']}{shards}; on disk: "
        f"{server['persistence']}; eviction: {server['maxmemory_policy'] or 'unknown'}; clock "
        f"{server['clock_ahead_us'] / 1_000:+.1f} ms (+/- {server['clock_within_us'] / 1_000:.1f}) from this host's."
    )


def _findings(report: dict[str, Any]) -> Iterator[str]:
    yield from (f"WRONG: {fault}" for fault in report["faults"])
    yield from (f"Warning: {warning}" for warning in report["warnings"])


def _report(store: Store, *, repair: bool) -> dict[str, Any]:
    # There may be more shards than SHARDS says; a server that does not answer is reported below.
    with suppress(StoreError):
        store.layouts.read_any()
    servers = store.check_servers(with_settings=True)
    faults = [*servers.fatal(), *servers.errors()]
    # The rest has no server now, which is one of the faults.
    shards = [store.shards[index] for index in servers.shards]
    drift: _Groups = {}
    left = 0
    # One repair can uncover the next inconsistency.
    for number in range(_WALKS if repair else 1):
        left = _walk(shards, drift, repair=repair, counts_kept=number == 0)
        if not left:
            break
    # A key of a wrong type would stop the rest too, and only --repair deletes it.
    readable = repair or "MISTYPED" not in drift
    layout = judge_layout(store) if readable and servers.shards else Findings()
    schedules = judge_schedules(store, shards, repair=repair) if readable else Findings()
    faults += [*layout.faults, *schedules.faults]
    jobs, misfits, overdue = 0, _Groups(), Counter[str]()
    ahead_us = {index: info.ahead_us for server, info in servers.answering for index in server.shards}
    for shard in shards if readable else ():
        for each in judge_jobs(shard, now_us=estimated_us(shard.clock) + ahead_us[shard.index]):
            jobs += 1
            if each.reason is not None:
                _add(misfits, each.reason, each.id)
            if each.overdue_in is not None:
                overdue[each.overdue_in] += 1
    incompatible = [
        {"ending": ending.value, "task": task, "means": _INCOMPATIBLE[ending], **group}
        for (ending, task), group in sorted(misfits.items(), key=lambda item: -item[1]["count"])
    ]
    warnings = [*servers.warnings(), *layout.warnings, *schedules.warnings]
    if readable:
        # Warnings, not faults: a deploy may have stopped all processes.
        with suppress(StoreError):
            found = check_liveness(store)
            warnings += [*found.projects, *found.still]
    return {
        "servers": [_server(server) for server in servers.servers],
        "faults": faults,
        "warnings": [*warnings, *_about_overdue(overdue)],
        "unchecked": list(servers.unchecked()),
        "drift": {code: {"means": _DRIFT[code][0], **group} for code, group in drift.items()},
        "repaired": repair and not left,
        "waiting": jobs if readable else None,
        "overdue": dict(overdue) if readable else None,
        "will_not_run": incompatible,
        "wrong": bool(faults or incompatible or left or not _KEPT.isdisjoint(drift)),
    }


def _server(server: CheckedServer) -> dict[str, Any]:
    known: dict[str, Any] = {"place": server.address, "shards": list(server.shards)}
    if (info := server.info) is None:
        return {**known, "error": str(server.error)}
    return {
        **known,
        "error": None,
        "kind": info.kind,
        "version": info.version,
        "persistence": info.persistence,
        "maxmemory_policy": info.policy,
        "clock_ahead_us": info.ahead_us,
        "clock_within_us": info.within_us,
        "replicas": info.replicas,
        "settings": info.settings,
    }


def _about_overdue(by_queue: Counter[str]) -> Iterator[str]:
    if by_queue:
        queues = ", ".join(f"{printable(name)} {number:,}" for name, number in sorted(by_queue.items()))
        yield (
            f"Overdue jobs: {by_queue.total():,} ({queues}). Their expiry is over, and each ends without a run when "
            f"its turn comes: start workers for these queues, or resume those that are paused."
        )


def _walk(shards: Sequence[Shard], drift: _Groups, *, repair: bool, counts_kept: bool) -> int:
    """Add the inconsistencies of these shards to `drift`, by code; return how many a repair corrects."""
    found = 0
    for shard in shards:
        for each in ConsistencyCheck(shard).walk(repair=repair):
            found += each.code not in _KEPT
            if counts_kept or each.code not in _KEPT:
                _add(drift, each.code, f"{each.key} {each.entry[:32].hex()}")
    return found


def _add(groups: _Groups, key: Any, example: str) -> None:
    group = groups.setdefault(key, {"count": 0, "examples": []})
    group["count"] += 1
    if len(group["examples"]) < _EXAMPLES:
        group["examples"].append(example)


def _sentences(report: dict[str, Any]) -> Iterator[str]:
    several = len(report["servers"]) > 1
    for server in report["servers"]:
        if server["error"] is None:
            yield _server_sentence(server, several=several)
    yield from report["unchecked"]
    yield from _findings(report)
    for code, kind in report["drift"].items():
        repair = _DRIFT[code][1]
        if report["repaired"] and code not in _KEPT:
            yield f"Repaired: {kind['count']:,} {code}, {kind['means']}: {repair}."
        else:
            yield f"WRONG: {kind['count']:,} {code}, {kind['means']}. With --repair: {repair}."
        yield from (f"    {example}" for example in kind["examples"])
    if not report["drift"]:
        yield "Keys: every job is in exactly one place."
    if report["waiting"] is None:
        yield "Jobs: not checked; repair the keys first."
        return
    for group in report["will_not_run"]:
        jobs = f"{group['count']:,} jobs of {group['task']!r:.200}"
        yield f"WRONG: {jobs} would end {group['ending']!r}: {group['means']}"
        yield from (f"    {example}" for example in group["examples"])
    if not report["will_not_run"]:
        yield f"Jobs: {report['waiting']:,} have not ended; this code has a task for each, and its arguments fit."
