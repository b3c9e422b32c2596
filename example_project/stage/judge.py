"""The judge: holds what was planned against what the ledger says. Pure; reads no database."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import median

from market.ledger import Ending, LedgerEntry
from market.templatetags.moments import late
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
        if self.plan.fate is Fate.CALLED_OFF:
            return True
        if self.plan.fate is Fate.DEAD:
            return any(run.ending == Ending.FAILED and run.attempt >= self.plan.attempts for run in self.runs)
        return any(run.ending == Ending.DONE for run in self.runs)


def match(plans: Iterable[Plan], entries: Sequence[LedgerEntry]) -> list[Finding]:
    """Give each plan its runs."""
    return [
        Finding(plan, sorted((run for run in entries if about(run) == about(plan)), key=lambda run: run.attempt))
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
        f"attempt {run.attempt} began {late(plan.due - run.started)} early" for run in runs if run.started < plan.due
    )
    yield from (f"attempt {run.attempt} began before its own time" for run in runs if run.started < run.due)
    if not timedelta(0) <= plan.due - runs[0].due < MILLISECOND:
        yield f"was due {late(abs(runs[0].due - plan.due))} from the time it was given"
    if len({run.job_id for run in runs}) != 1:
        yield "ran as more than one job"
    yield from order_faults(runs)
    # What a dead worker took with it explains itself; every run that ended has its place in the fate.
    endings = [run.ending for run in runs if run.ending != Ending.NONE]
    lost = runs[-1].attempt - len(endings)
    wanted = [Ending.DONE]
    if plan.fate is Fate.RETRIED and not lost:
        wanted = [Ending.FAILED, Ending.DONE]
    elif plan.fate is Fate.DEAD:
        wanted = [Ending.FAILED] * max(plan.attempts - lost, 0)
    if endings != wanted and not (plan.fate is Fate.RETRIED and endings == [Ending.FAILED, Ending.DONE]):
        yield f"ended as {', '.join(run.get_ending_display().lower() for run in runs)}"
    if plan.fate is Fate.KILLED and not (lost and runs[-1].recovered):
        yield "was not seen to lose its worker and be recovered"


def order_faults(runs: Sequence[LedgerEntry]) -> Iterable[str]:
    """Say what is wrong with the numbers of the attempts.

    One may be missing: a worker can die after it took the job and before the ledger heard of it. One without an
    end must have been followed by a recovery, or nothing explains it.
    """
    for before, run in zip([None, *runs], runs, strict=False):
        previous = before.attempt if before else 0
        if run.attempt <= previous:
            yield f"has attempt {run.attempt} twice"
        unexplained = run.attempt > previous + 1 or (before is not None and before.ending == Ending.NONE)
        if unexplained and not run.recovered:
            yield f"has an attempt {run.attempt} that follows none, and is no recovery"


def lateness(findings: Iterable[Finding]) -> tuple[timedelta, timedelta] | None:
    """The median and the greatest lateness of first attempts."""
    delays = [finding.runs[0].started - finding.plan.due for finding in findings if finding.runs]
    return (median(delays), max(delays)) if delays else None
