"""manage.py delayq_check: look at the server, at every key, and at whether what waits will still run."""

import json
from collections.abc import Iterator
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_delayq.exceptions import StoreError
from django_delayq.job.outcome import OutcomeKind
from django_delayq.management.starting import add_backend, read_settings
from django_delayq.preflight import Preflight
from django_delayq.store.client.server_info import ServerInfo
from django_delayq.store.store import Store, get_store

#: What the audit's words mean, and what --repair does.
_DRIFT = {
    "MISTYPED": ("keys of another type than ours", "deleted"),
    "MALFORMED": ("entries or records that nobody of ours wrote", "dropped"),
    "MISSING": ("entries or records whose job is not there", "dropped"),
    "DUPLICATE": ("jobs in two places", "the later state stays"),
    "MISPLACED": ("jobs in another queue or priority than their body says", "put where it says"),
    "ORPHANED": ("jobs in no place", "ready again; dead letters are listed again"),
    "NO_LEASE": ("running jobs without a lease", "taken back as if it had lapsed"),
    "NO_RECORD": ("leases whose running job is not noted", "noted"),
    "UNREADABLE": ("unreadable bodies in no place", "dead letters"),
    "QUEUE_NOT_LISTED": ("jobs in a queue whose name was forgotten", "listed"),
    "MISCOUNTED": ("a sum of bytes of all dead letters that is wrong", "counted anew"),
    "KEY_NOT_HELD": ("jobs that no longer hold their key", "held again"),
}
_DOUBTS = {
    OutcomeKind.UNKNOWN_TASK: "no task of that name is registered: keep it, or name it in aliases=",
    OutcomeKind.ARGUMENTS_MISMATCH: "their arguments do not fit the function: give new parameters a default",
    OutcomeKind.NEWER: "stored by a newer django_delayq",
    OutcomeKind.BAD_SIGNATURE: "not signed with SECRET_KEY or SECRET_KEY_FALLBACKS",
    OutcomeKind.UNREADABLE: "their stored body cannot be read",
}


#: Examples told of each kind.
_EXAMPLES = 5
#: Walks until a shard that is repaired must have nothing left to find.
_WALKS = 5


class Command(BaseCommand):
    """Check, and with --repair repair, what DELAYQ points to."""

    help = (
        "Checks the Redis server, every key, and whether what waits will still run; exits with 1 if anything is wrong."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the options."""
        add_backend(parser)
        parser.add_argument("--repair", action="store_true", help="Mend what is in no place, in two, or half there.")
        parser.add_argument("--json", action="store_true", help="Print one JSON object instead of sentences.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Look, print, and exit."""
        read_settings(options["backend"])
        try:
            report = _look(get_store(options["backend"]), repair=options["repair"])
        except StoreError as error:
            raise CommandError(str(error)) from error
        told = json.dumps(report, indent=2) if options["json"] else "\n".join(_sentences(report))
        self.stdout.write(told)
        if report["wrong"]:
            raise SystemExit(1)


def _look(store: Store, *, repair: bool) -> dict[str, Any]:
    server = ServerInfo.fetch(store.shards[0].client, closely=True)
    faults = [*server.fatal(), *server.errors()]
    drift: dict[str, dict[str, Any]] = {}
    left = 0
    # One repair can uncover the next fault.
    for _ in range(_WALKS if repair else 1):
        left = 0
        for finding in (
            finding for shard in store.shards for finding in store.consistency_check(shard).walk(repair=repair)
        ):
            left += 1
            kind = drift.setdefault(finding.code, {"count": 0, "means": _DRIFT[finding.code][0], "examples": []})
            kind["count"] += 1
            if len(kind["examples"]) < _EXAMPLES:
                kind["examples"].append(f"{finding.key} {finding.entry[:32].hex()}")
        if not left:
            break
    # A key of another type, which only --repair takes away, would stop this too.
    readable = repair or "MISTYPED" not in drift
    if readable and (known := store.known_shards()) not in (0, store.config.shards):
        faults.append(
            f"DELAYQ['SHARDS'] is {store.config.shards}, but the keys are spread over {known}: "
            f"what is in the others is neither looked at here nor run."
        )
    forecast = Preflight.of(store) if readable else Preflight()
    doubts = [
        {
            "ending": doubt.ending.value,
            "task": doubt.task,
            "count": count,
            "means": _DOUBTS[doubt.ending],
            "examples": forecast.examples[doubt],
        }
        for doubt, count in forecast.doubts.most_common()
    ]
    return {
        "server": {
            "place": store.config.redis.display_url,
            "kind": server.kind,
            "version": server.version,
            "persistence": server.persistence,
            "maxmemory_policy": server.policy,
            "clock_ahead_us": server.ahead_us,
            "clock_within_us": server.within_us,
        },
        "faults": faults,
        "warnings": list(server.warnings()),
        "drift": drift,
        "repaired": repair and not left,
        "waiting": forecast.jobs if readable else None,
        "will_not_run": doubts,
        "wrong": bool(faults or doubts or left),
    }


def _sentences(report: dict[str, Any]) -> Iterator[str]:
    server = report["server"]
    yield (
        f"{server['kind'].capitalize()} {server['version']} at {server['place']}; on disk: {server['persistence']}; "
        f"eviction: {server['maxmemory_policy'] or 'unknown'}; clock {server['clock_ahead_us'] / 1_000:+.1f} ms "
        f"(+/- {server['clock_within_us'] / 1_000:.1f}) from this host's."
    )
    yield from (f"WRONG: {fault}" for fault in report["faults"])
    yield from (f"Warning: {warning}" for warning in report["warnings"])
    for word, kind in report["drift"].items():
        cure = _DRIFT[word][1]
        if report["repaired"]:
            yield f"Repaired: {kind['count']:,} {word}, {kind['means']}: {cure}."
        else:
            yield f"WRONG: {kind['count']:,} {word}, {kind['means']}. With --repair: {cure}."
        yield from (f"    {example}" for example in kind["examples"])
    if not report["drift"]:
        yield "Keys: every job is in exactly one place."
    if report["waiting"] is None:
        yield "Jobs: not looked at; repair the keys first."
        return
    for doubt in report["will_not_run"]:
        jobs = f"{doubt['count']:,} jobs of {doubt['task']!r:.200}"
        yield f"WRONG: {jobs} would end {doubt['ending']!r}: {doubt['means']}."
        yield from (f"    {example}" for example in doubt["examples"])
    if not report["will_not_run"]:
        yield f"Jobs: {report['waiting']:,} have not ended; this code has a task for each, and its arguments fit."
