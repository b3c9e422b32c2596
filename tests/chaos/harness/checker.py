"""Checker: compares the recorded runs with the accepted jobs. Pure functions over values, without Redis or processes.

Times are seconds since the epoch. A repeated run is a violation unless something explains it: the first run failed, its
process died, or it was frozen or disconnected for longer than its lease. Nothing explains a repeated run if the worker
had received the reply to its acknowledgement.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from itertools import combinations, pairwise
from math import inf

from tests.chaos.harness.case import AcceptedJob, Case, Dead, Death, Outage, Run

#: The most seconds between the end of a run and its place in the outcome buffer, on a busy machine.
HAND_IN = 1.0
#: The most seconds between the end of a run and the reply to its acknowledgement, if only a busy machine delays it.
SILENT = 5.0
#: The share of a lease that is left at any time. It is renewed after every third of it.
LEFT = 0.5


@dataclass(slots=True, kw_only=True)
class CheckResult:
    """All violations as sentences, one list for each kind. All lists are empty if the engine kept its guarantees."""

    lost: list[str] = field(default_factory=list)
    early: list[str] = field(default_factory=list)
    overlapping: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    miscounted: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    #: What must not exist at the end, in Redis or among the processes. The callers of the checker add it.
    left: list[str] = field(default_factory=list)
    #: Tests that prove nothing, because there is no job or no run.
    empty: list[str] = field(default_factory=list)
    accepted: int = 0
    deliveries: int = 0
    finished: int = 0
    dead: int = 0
    #: Runs that ended with their process.
    cut_short: int = 0
    #: Repeated runs that something explains.
    repeated: int = 0

    @property
    def violations(self) -> dict[str, list[str]]:
        """The violations by kind, without the empty kinds."""
        found = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {name: value for name, value in found.items() if isinstance(value, list) and value}

    def __str__(self) -> str:
        return "\n".join(f"{len(found)} {name}: {'; '.join(found[:5])}" for name, found in self.violations.items())


def check(case: Case) -> CheckResult:
    """Check all jobs of a case."""
    history = FaultHistory(case)
    result = CheckResult(
        accepted=len(case.accepted_jobs),
        deliveries=len(case.runs),
        dead=len(case.dead),
        finished=len({run.id for run in case.runs if run.how == "done"}),
        cut_short=sum(not run.how for run in case.runs),
    )
    if not case.accepted_jobs or not case.runs:
        result.empty.append(f"{len(case.accepted_jobs)} jobs and {len(case.runs)} runs prove nothing")
    runs: dict[str, list[Run]] = defaultdict(list)
    for run in case.runs:
        runs[run.id].append(run)
    dead = {item.id: item for item in case.dead}
    for accepted in case.accepted_jobs:
        mine = sorted(runs.get(accepted.id, ()), key=lambda run: run.start)
        _check_end(result, accepted, mine, dead.get(accepted.id), history)
        _check_starts(result, accepted, mine, history)
        _check_repeats(result, accepted, mine, history)
        _check_counts(result, accepted, mine, dead.get(accepted.id), history)
    known = {accepted.id for accepted in case.accepted_jobs} | set(case.doubtful)
    result.unexpected += [f"{job} was never accepted" for job in (runs.keys() | dead.keys()) - known]
    return result


def _check_end(
    result: CheckResult, accepted: AcceptedJob, runs: list[Run], dead: Dead | None, history: "FaultHistory"
) -> None:
    """Check that the job finished, is dead, or was cancelled."""
    settled = accepted.cancelled_at is not None or accepted.cancel_doubtful
    if not settled and dead is None and not any(run.how == "done" for run in runs):
        result.lost.append(f"{accepted.id} ran {len(runs)} times, never finished, and is not dead")
    if accepted.cancelled_at is not None:
        for run in runs:
            # A job that had run before could still be cancelled while it waited for its next attempt.
            if not history.explains_repeat(run) and accepted.sends == 1:
                result.unexpected.append(f"{accepted.id} was cancelled, but ran as attempt {run.attempt}")
        if dead is not None:
            result.unexpected.append(f"{accepted.id} was cancelled, but is dead")


def _check_starts(result: CheckResult, accepted: AcceptedJob, runs: list[Run], history: "FaultHistory") -> None:
    """Check that no run started before the due time."""
    for run in runs:
        due = accepted.due
        if accepted.moved and run.start > accepted.moved[0] and not history.explains_repeat(run):
            due = accepted.moved[1]
        if run.start < due:
            result.early.append(f"{run.id} started {due - run.start:.6f} s before it was due")


def _check_repeats(result: CheckResult, accepted: AcceptedJob, runs: list[Run], history: "FaultHistory") -> None:
    """Check that runs do not overlap, and that something explains each repeated run."""
    spare = accepted.sends - 1
    for first, second in pairwise(runs):
        if history.explains_repeat(first, by=second.start):
            result.repeated += first.how != "failed"
        elif spare:
            spare -= 1
        else:
            result.duplicates.append(f"{first} ran again without a fault")
    for first, second in combinations(runs, 2):
        if history.end_of(first) > second.start and not history.may_have_lost_lease(first, by=second.start):
            result.overlapping.append(
                f"{second} began {history.end_of(first) - second.start:.3f} s before {first} had ended"
            )


def _check_counts(
    result: CheckResult, accepted: AcceptedJob, runs: list[Run], dead: Dead | None, history: "FaultHistory"
) -> None:
    """Check that each attempt is counted once, before it runs, and that there are not too many."""
    numbers = [run.attempt for run in runs]
    # The confirmation of a blocking claim can be lost with its connection. Then the next run has the same number.
    counted = [
        run
        for at, run in enumerate(runs, 1)
        if run.attempt not in numbers[at:] or not history.confirmation_may_be_lost(run)
    ]
    if max(Counter(run.attempt for run in counted).values(), default=0) > accepted.sends:
        result.miscounted.append(f"two runs with one attempt number: {'; '.join(map(str, runs))}")
    if len(counted) > accepted.max_attempts * accepted.sends or max(numbers, default=0) > accepted.max_attempts:
        result.miscounted.append(f"{accepted.id} ran as attempts {numbers} of {accepted.max_attempts}")
    # A claim whose job never started records no run. Only the end of the worker's lease can have ended such a claim.
    for run in runs:
        seen = sum(other.start < run.start for other in runs)
        possible = seen
        if run.attempt - 1 > seen:
            possible += history.count_faults(accepted.due, run.start)
        if run.attempt - 1 > possible:
            result.miscounted.append(f"{accepted.id} ran as attempt {run.attempt} but only {possible} can have ended")
    if dead is None:
        return
    if dead.ended != accepted.max_attempts:
        result.miscounted.append(f"{accepted.id} is dead after {dead.ended} attempts of {accepted.max_attempts}")
    if not accepted.poison:
        result.lost.append(f"{accepted.id} is dead ({', '.join(dead.endings)}), but is no poison")


class FaultHistory:
    """All deaths, outages and cuts of a case, by process."""

    def __init__(self, case: Case) -> None:
        self._lease = case.lease
        #: Process ids are reused. Of several workers with one id, the one that started last before a run counts.
        self._deaths: dict[int, list[Death]] = defaultdict(list)
        for death in sorted(case.deaths, key=lambda death: death.started_at):
            self._deaths[death.pid].append(death)
        self._outages: dict[int, list[Outage]] = defaultdict(list)
        for outage in case.outages:
            self._outages[outage.pid].append(outage)
        self._cuts = case.cuts
        #: By worker, in the order in which the runs ended. A worker sends its outcomes in that order.
        self._ended: dict[int, list[Run]] = defaultdict(list)
        for run in sorted((run for run in case.runs if run.end is not None), key=_end):
            self._ended[run.worker].append(run)
        # Periods in which a claim can have ended without a run: a worker's death or an outage, until the reclaim.
        ends = [(death.at, death.gone) for death in case.deaths]
        self._spans = sorted([*ends, *((outage.begin, outage.end) for outage in case.outages)])

    def explains_repeat(self, run: Run, *, by: float = inf) -> bool:
        """Return whether a repeated run that starts at `by` is explained.

        The run failed, or its process died or was disconnected before it can have received the reply to its
        acknowledgement.
        """
        if run.how in ("failed", "crashed"):
            return True
        if run.acknowledged is not None:
            return False
        until, died = min(self._answered(run), by), self._death_of(run)
        if died is not None and died < until:
            return True
        return any(outage.begin < until and run.begin < outage.end for outage in self._outages_of(run))

    def confirmation_may_be_lost(self, run: Run) -> bool:
        """Return whether a run has no acknowledgement and an outage fell between its claim and the first heartbeat."""
        until = run.start + self._lease / 3
        return run.acknowledged is None and any(
            outage.begin < until and run.begin < outage.end for outage in (*self._outages_of(run), *self._cuts)
        )

    def may_have_lost_lease(self, run: Run, *, by: float) -> bool:
        """Return whether an outage can have cost a run its lease before the time `by`."""
        return run.acknowledged is None and any(
            outage.begin + LEFT * self._lease <= by and run.begin < outage.end for outage in self._outages_of(run)
        )

    def end_of(self, run: Run) -> float:
        """Return when a run was over. A run that recorded no end ended with its process."""
        if run.end is not None:
            return run.end
        died = self._death_of(run)
        return inf if died is None else died

    def count_faults(self, begin: float, end: float) -> int:
        """Count the events between two times that can have ended a claim."""
        return sum(span[0] < end and span[1] > begin for span in self._spans)

    def _answered(self, run: Run) -> float:
        """Return the latest time of the reply to a run's acknowledgement, without an outage.

        The reply comes with the reply to a run that ended later, or within SILENT seconds.
        """
        end = self.end_of(run)
        ended = self._ended[run.worker]
        later = ended[bisect_right(ended, end + HAND_IN, key=_end) : bisect_right(ended, end + SILENT, key=_end)]
        return min([end + SILENT, *(other.acknowledged for other in later if other.acknowledged is not None)])

    def _death_of(self, run: Run) -> float | None:
        """Return when the process of a run died.

        The process of a suspected crasher dies with its worker, or at once if the worker is dead already.
        """
        own, parents = self._last(run.pid, run.start), self._last(run.parent, run.start)
        ends = [max(run.start, own.at)] if own is not None and own.gone >= run.start else []
        ends += [max(run.start, parents.at)] if parents is not None else []
        return min(ends, default=None)

    def _last(self, pid: int, moment: float) -> Death | None:
        deaths = self._deaths.get(pid, [])
        at = bisect_right(deaths, moment, key=lambda death: death.started_at)
        return deaths[at - 1] if at else None

    def _outages_of(self, run: Run) -> Iterable[Outage]:
        for pid in {0, run.pid, run.parent}:
            yield from self._outages.get(pid, ())


def _end(run: Run) -> float:
    return inf if run.end is None else run.end
