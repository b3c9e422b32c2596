"""Judge: what a ledger says of the promises. Pure functions over values; knows no Redis and no process.

Moments are seconds since the epoch, of the one clock that all on this machine share. A second run of a job is a fault
of ours unless something excuses the first: it failed, its process died, or it was frozen or cut off past its lease.
Nothing excuses it where Redis had the first one's acknowledgement, and its worker knew.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from itertools import combinations, pairwise
from math import inf

from tests.chaos.case import Case, Dead, Death, Promise, Run, Trouble

#: Seconds between the end of a run and its place among the outcomes to be handed in, on a machine that is busy.
HAND_IN = 1.0
#: Seconds between the end of a run and the answer to its acknowledgement, where a busy machine is all that delays it.
SILENT = 5.0
#: Share of a lease that is left at any moment, since it is renewed every third of it.
LEFT = 0.5


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What was found, each as sentences; all empty where every promise was kept."""

    lost: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    overlapping: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    miscounted: list[str] = field(default_factory=list)
    ghosts: list[str] = field(default_factory=list)
    #: What should not be there at the end, in Redis or among the processes; others than the judge look for it.
    left: list[str] = field(default_factory=list)
    #: A trial that shows nothing: no job, or no delivery.
    empty: list[str] = field(default_factory=list)
    accepted: int = 0
    deliveries: int = 0
    finished: int = 0
    dead: int = 0
    #: Runs that ended by the end of their process.
    cut_short: int = 0
    #: Second runs that something excuses.
    repeated: int = 0

    @property
    def faults(self) -> dict[str, list[str]]:
        """What was found, by kind."""
        found = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {name: value for name, value in found.items() if isinstance(value, list) and value}

    def __str__(self) -> str:
        return "\n".join(f"{len(found)} {name}: {'; '.join(found[:5])}" for name, found in self.faults.items())


def check(case: Case) -> Verdict:
    """Hear the case."""
    evidence = Evidence(case)
    verdict = Verdict(
        accepted=len(case.promises),
        deliveries=len(case.runs),
        dead=len(case.dead),
        finished=len({run.id for run in case.runs if run.how == "done"}),
        cut_short=sum(not run.how for run in case.runs),
    )
    if not case.promises or not case.runs:
        verdict.empty.append(f"{len(case.promises)} jobs and {len(case.runs)} deliveries show nothing")
    runs: dict[str, list[Run]] = defaultdict(list)
    for run in case.runs:
        runs[run.id].append(run)
    dead = {item.id: item for item in case.dead}
    for promise in case.promises:
        mine = sorted(runs.get(promise.id, ()), key=lambda run: run.start)
        _check_end(verdict, promise, mine, dead.get(promise.id), evidence)
        _check_starts(verdict, promise, mine, evidence)
        _check_repeats(verdict, promise, mine, evidence)
        _check_counts(verdict, promise, mine, dead.get(promise.id), evidence)
    known = {promise.id for promise in case.promises} | set(case.doubtful)
    verdict.ghosts += [f"{job} was never accepted" for job in (runs.keys() | dead.keys()) - known]
    return verdict


def _check_end(verdict: Verdict, promise: Promise, runs: list[Run], dead: Dead | None, evidence: "Evidence") -> None:
    """It ran to an end, or is dead, or was cancelled."""
    settled = promise.cancelled_at is not None or promise.cancel_doubtful
    if not settled and dead is None and not any(run.how == "done" for run in runs):
        verdict.lost.append(f"{promise.id} ran {len(runs)} times, never to an end, and is not dead")
    if promise.cancelled_at is not None:
        for run in runs:
            # What ran before and waited for another attempt could still be cancelled.
            if not evidence.excuses(run) and promise.lives == 1:
                verdict.ghosts.append(f"{promise.id} was cancelled, yet ran as attempt {run.attempt}")
        if dead is not None:
            verdict.ghosts.append(f"{promise.id} was cancelled, yet is dead")


def _check_starts(verdict: Verdict, promise: Promise, runs: list[Run], evidence: "Evidence") -> None:
    """No run began before its time."""
    for run in runs:
        due = promise.due
        if promise.moved and run.start > promise.moved[0] and not evidence.excuses(run):
            due = promise.moved[1]
        if run.start < due:
            verdict.early.append(f"{run.id} began {due - run.start:.6f} s before its time")


def _check_repeats(verdict: Verdict, promise: Promise, runs: list[Run], evidence: "Evidence") -> None:
    """One run at a time, and one more only where the one before is excused."""
    spare = promise.lives - 1
    for first, second in pairwise(runs):
        if evidence.excuses(first, by=second.start):
            verdict.repeated += first.how != "failed"
        elif spare:
            spare -= 1
        else:
            verdict.duplicates.append(f"{first} ran again, though nothing had ended it")
    for first, second in combinations(runs, 2):
        if evidence.end_of(first) > second.start and not evidence.was_cut_off(first, by=second.start):
            verdict.overlapping.append(
                f"{second} began {evidence.end_of(first) - second.start:.3f} s before {first} had ended"
            )


def _check_counts(verdict: Verdict, promise: Promise, runs: list[Run], dead: Dead | None, evidence: "Evidence") -> None:
    """Each attempt is counted once, before it runs, and no more than there may be."""
    numbers = [run.attempt for run in runs]
    # The mark of a claim that came with a bell can be lost with its connection; then the next run has its number.
    counted = [
        run for at, run in enumerate(runs, 1) if run.attempt not in numbers[at:] or not evidence.mark_may_be_lost(run)
    ]
    if max(Counter(run.attempt for run in counted).values(), default=0) > promise.lives:
        verdict.miscounted.append(f"one number, two runs: {'; '.join(map(str, runs))}")
    if len(counted) > promise.max_attempts * promise.lives or max(numbers, default=0) > promise.max_attempts:
        verdict.miscounted.append(f"{promise.id} ran as attempts {numbers} of {promise.max_attempts}")
    # A claim that was never begun leaves no line; but only the end of its worker's lease can have ended it.
    for run in runs:
        seen = sum(other.start < run.start for other in runs)
        possible = seen
        if run.attempt - 1 > seen:
            possible += evidence.excuses_between(promise.due, run.start)
        if run.attempt - 1 > possible:
            verdict.miscounted.append(f"{promise.id} ran as attempt {run.attempt} where {possible} can have ended")
    if dead is None:
        return
    if dead.ended != promise.max_attempts:
        verdict.miscounted.append(f"{promise.id} died after {dead.ended} attempts of {promise.max_attempts}")
    if not promise.poison:
        verdict.lost.append(f"{promise.id} is dead ({', '.join(dead.endings)}), though it harms nobody")


class Evidence:
    """The excuses of a case, by process."""

    def __init__(self, case: Case) -> None:
        self._lease = case.lease
        #: Process ids come round again: of several workers of one id the one that was born last before a run counts.
        self._deaths: dict[int, list[Death]] = defaultdict(list)
        for death in sorted(case.deaths, key=lambda death: death.born):
            self._deaths[death.pid].append(death)
        self._troubles: dict[int, list[Trouble]] = defaultdict(list)
        for trouble in case.troubles:
            self._troubles[trouble.pid].append(trouble)
        self._cuts = case.cuts
        #: By worker, in the order in which they ended: their outcomes are handed in in that order.
        self._ended: dict[int, list[Run]] = defaultdict(list)
        for run in sorted((run for run in case.runs if run.end is not None), key=_end):
            self._ended[run.worker].append(run)
        # A time in which a claim can have ended unseen: a worker's death or trouble, until its leases were reclaimed.
        ends = [(death.at, death.gone) for death in case.deaths]
        self._spans = sorted([*ends, *((trouble.begin, trouble.end) for trouble in case.troubles)])

    def excuses(self, run: Run, *, by: float = inf) -> bool:
        """Whether a run may be followed by another, that began at `by`.

        It failed, or its process died or was cut off before there can have been an answer to its acknowledgement.
        """
        if run.how in ("failed", "crashed"):
            return True
        if run.acknowledged is not None:
            return False
        until, died = min(self._answered(run), by), self._death_of(run)
        if died is not None and died < until:
            return True
        return any(trouble.begin < until and run.begin < trouble.end for trouble in self._troubles_of(run))

    def mark_may_be_lost(self, run: Run) -> bool:
        """Whether a run was never acknowledged, and trouble fell between its claim and the first heartbeat."""
        until = run.start + self._lease / 3
        return run.acknowledged is None and any(
            trouble.begin < until and run.begin < trouble.end for trouble in (*self._troubles_of(run), *self._cuts)
        )

    def was_cut_off(self, run: Run, *, by: float) -> bool:
        """Whether trouble can have cost a run its lease before the moment `by`."""
        return run.acknowledged is None and any(
            trouble.begin + LEFT * self._lease <= by and run.begin < trouble.end for trouble in self._troubles_of(run)
        )

    def end_of(self, run: Run) -> float:
        """When a run was over: one that wrote down no end ended with its process."""
        if run.end is not None:
            return run.end
        died = self._death_of(run)
        return inf if died is None else died

    def excuses_between(self, begin: float, end: float) -> int:
        """Count what can have ended a claim between two moments."""
        return sum(span[0] < end and span[1] > begin for span in self._spans)

    def _answered(self, run: Run) -> float:
        """When the acknowledgement of a run must have been answered, in peace: with what ended after it, or in time."""
        end = self.end_of(run)
        ended = self._ended[run.worker]
        later = ended[bisect_right(ended, end + HAND_IN, key=_end) : bisect_right(ended, end + SILENT, key=_end)]
        return min([end + SILENT, *(other.acknowledged for other in later if other.acknowledged is not None)])

    def _death_of(self, run: Run) -> float | None:
        """When the process of a run ended; a suspect's ends with its worker, or at once where that is dead already."""
        own, parents = self._last(run.pid, run.start), self._last(run.parent, run.start)
        ends = [max(run.start, own.at)] if own is not None and own.gone >= run.start else []
        ends += [max(run.start, parents.at)] if parents is not None else []
        return min(ends, default=None)

    def _last(self, pid: int, moment: float) -> Death | None:
        deaths = self._deaths.get(pid, [])
        at = bisect_right(deaths, moment, key=lambda death: death.born)
        return deaths[at - 1] if at else None

    def _troubles_of(self, run: Run) -> Iterable[Trouble]:
        for pid in {0, run.pid, run.parent}:
            yield from self._troubles.get(pid, ())


def _end(run: Run) -> float:
    return inf if run.end is None else run.end
