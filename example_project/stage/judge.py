"""The judge: holds what was planned against what the ledger says. Pure; reads no database."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import median

from market.ledger import Ending, LedgerEntry
from stage.plan import Fate, Plan

#: A worker knows when its job was due to the millisecond; the plan knows it exactly.
MILLISECOND = timedelta(milliseconds=1)


@dataclass
class Finding:
    """One plan with its runs in their order, and what is wrong with them; an empty list is what we want."""

    plan: Plan
    runs: list[LedgerEntry]
    wrong: list[str] = field(default_factory=list)

    @property
    def settled(self) -> bool:
        """Whether nothing more is to come, as far as runs can tell."""
        ended = sum(run.ending == Ending.FAILED for run in self.runs)
        return {Fate.CALLED_OFF: True, Fate.DEAD: ended >= self.plan.attempts}.get(self.plan.fate, self.done)

    @property
    def done(self) -> bool:
        return any(run.ending == Ending.DONE for run in self.runs)


def match(plans: Iterable[Plan], entries: Sequence[LedgerEntry]) -> list[Finding]:
    """Give each plan its runs."""
    return [
        Finding(
            plan, sorted((run for run in entries if about(run) == about(plan)), key=lambda run: run.attempt)
        )
        for plan in plans
    ]


def about(thing: Plan | LedgerEntry) -> tuple[str, int | str]:
    return thing.task, thing.sale_id or thing.subject


def judge(plans: Iterable[Plan], entries: Sequence[LedgerEntry]) -> list[Finding]:
    """Hold every plan against its runs."""
    findings = match(plans, entries)
    for finding in findings:
        finding.wrong = list(faults(finding))
    return findings


def faults(finding: Finding) -> Iterable[str]:
    """Say what is wrong with one job's runs."""
    plan, runs = finding.plan, finding.runs
    if plan.fate is Fate.CALLED_OFF:
        if runs:
            yield "ran although it was called off"
        return
    if not runs:
        yield "never ran"
        return
    yield from (
        f"attempt {run.attempt} began {plan.due - run.started} early"
        for run in runs
        if run.started < plan.due
    )
    yield from (f"attempt {run.attempt} began before its own time" for run in runs if run.started < run.due)
    if not timedelta(0) <= plan.due - runs[0].due < MILLISECOND:
        yield f"was due {runs[0].due - plan.due} from the time it was given"
    if len({run.job_id for run in runs}) != 1:
        yield "ran as more than one job"
    if [run.attempt for run in runs] != list(range(1, len(runs) + 1)):
        yield f"has attempts {[run.attempt for run in runs]}"
    # A run that a dead worker left without an end explains itself; every other one has its place in the fate.
    endings = [run.ending for run in runs if run.ending != Ending.NONE]
    wanted = {
        Fate.RETRIED: [Ending.FAILED, Ending.DONE],
        Fate.DEAD: [Ending.FAILED] * plan.attempts,
    }.get(plan.fate, [Ending.DONE])
    lost = len(runs) - len(endings)
    if plan.fate is Fate.RETRIED and lost:
        wanted = wanted[-len(endings) :] if endings else wanted
    if plan.fate is Fate.DEAD and lost:
        wanted = wanted[lost:]
    if endings != wanted:
        yield f"ended as {', '.join(run.get_ending_display().lower() for run in runs)}"
    if plan.fate is Fate.KILLED and not (lost and runs[-1].recovered):
        yield "was not seen to lose its worker and be recovered"


def lateness(findings: Iterable[Finding]) -> tuple[timedelta, timedelta] | None:
    """The median and the greatest lateness of first attempts."""
    late = [finding.runs[0].started - finding.plan.due for finding in findings if finding.runs]
    return (median(late), max(late)) if late else None
