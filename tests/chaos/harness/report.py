"""Report: the ledger, dead letters and remaining keys of a fault run, as values for the checker and as one line."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from typing import Any

from redis import Redis

from django_delayq.job.ids import to_text
from django_delayq.store.keys import Keys
from tests.chaos.harness.case import Dead, Run
from tests.chaos.harness.checker import CheckResult
from tests.inspection import inspection
from tests.stateful.redis_state import noun_of

#: Keys that remain when all jobs have ended.
STAY = frozenset(
    ("queues", "queues_version", "workers", "dispatchers", "worker_names", "process_reports", "metrics", "exchanges")
    + (
        "next_promotion",
        "notify_dispatcher",
        "notify",
        "shards",
        "enqueued",
        "dead_letters",
        "dead_bodies",
        "dead_bytes",
        "dead_by_group",
        "groups_of_dead",
        "error_groups",
        "finished",
        "metrics_by_hour",
        "totals",
        "releases",
        "no_reclaim_before",
    )
    + ("cancelled", "withdrawn")
)


#: The most faults in a failure message. The file `faults` beside the ledger lists all of them.
_FAULTS_SHOWN = 30


@dataclass(kw_only=True)
class Report:
    """The summary of a fault run."""

    name: str
    seed: int
    result: CheckResult
    kills: int
    restarts: int
    faults: Counter[str]
    #: Name, start and end of each fault.
    log: list[tuple[str, float, float]]
    refused: int
    #: The longest time in seconds without a fault and without the start of a job. It depends on the machine.
    resume: float
    seconds: float

    @property
    def failure_text(self) -> str:
        """The violations, and the last faults."""
        log = "\n".join(f"{begin:.3f} to {end:.3f} {name}" for name, begin, end in self.log[-_FAULTS_SHOWN:])
        return f"seed {self.seed}\n{self.result}\n{log}"

    def __str__(self) -> str:
        result = self.result
        found = ", ".join(f"{len(found)} {name}" for name, found in result.violations.items())
        return (
            f"fault run {self.name!r}: {result.accepted} jobs, {result.deliveries} deliveries "
            f"({result.cut_short} cut short, {result.repeated} repeated), {result.dead} dead, "
            f"{self.faults.total()} faults ({', '.join(f'{n} {name}' for name, n in self.faults.most_common())}), "
            f"{self.kills} kills, {self.restarts} restarts, {self.refused} calls refused, "
            f"resume {self.resume:.1f} s, {self.seconds:.0f} s, seed {self.seed}: {found or 'all kept'}"
        )


def read_runs(events: list[dict[str, Any]]) -> list[Run]:
    """Join the starts, ends and acknowledgements of a ledger to runs."""
    runs: list[Run] = []
    # A job that was stored again after its run may run again as the same attempt in the same process.
    begun: dict[tuple[str, int, int], int] = {}
    # The worker that holds the lease acknowledges, but a suspected crasher runs in a process of its own.
    held: dict[tuple[str, int, int], int] = {}
    for event in events:
        if event["word"] not in ("run", "end", "acknowledged"):
            continue
        name = (event["id"], event["attempt"], event["pid"])
        if event["word"] == "acknowledged":
            runs[held[name]] = replace(runs[held[name]], acknowledged=event["at"])
            continue
        if event["word"] == "end":
            at = begun[name]
            runs[at] = replace(runs[at], end=event["at"], how="failed" if event["failed"] else "done")
            continue
        begun[name] = len(runs)
        held[event["id"], event["attempt"], event.get("parent") or event["pid"]] = len(runs)
        facts = {fact: event.get(fact) for fact in ("id", "attempt", "pid", "parent", "claimed")}
        if "how" in event:
            how = "failed" if event["how"] == "leave" else "crashed"
            runs.append(Run(**facts, start=event["at"], end=event["at"], how=how))
        else:
            runs.append(Run(**facts, start=event["at"]))
    return runs


def longest_pause(faults: list[tuple[str, float, float]], starts: list[float]) -> float:
    """Return the longest time without a fault and without the start of a job, in seconds.

    It counts from the end of a fault to the next start of a job or the next fault. Faults (name, start, end) do not
    overlap.
    """
    ordered, longest = sorted(starts), 0.0
    for (_, _, end), (_, begin, _) in pairwise([*faults, ("the end", inf, inf)]):
        following = bisect_left(ordered, end)
        until = min(begin, ordered[following] if following < len(ordered) else inf)
        longest = max(longest, until - end if until < inf else 0.0)
    return longest


def read_dead(client: Redis, keys: Keys) -> list[Dead]:
    """Return all dead letters."""
    read = inspection(keys.shard)
    letters = [read.dead_letter(raw_id) for raw_id in client.zrange(keys("dead_letters"), 0, -1)]
    return [
        Dead(
            id=to_text(letter.raw_id, letter.shard),
            ended=letter.attempts.ended,
            endings=tuple(str(entry["ending"]) for entry in letter.attempts.history),
        )
        for letter in letters
        if letter is not None
    ]


def left_over(client: Redis, keys: Keys) -> list[str]:
    """Return the keys that must not exist when all jobs have ended."""
    names = [key.decode() for key in client.scan_iter("*", 1_000)]
    return [f"{name} ({client.type(name).decode()})" for name in names if noun_of(name, keys) not in STAY]
