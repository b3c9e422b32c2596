"""The checker: compares the planned jobs with the run log. Pure; reads no database."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import median

from demo.plan import ExpectedOutcome, PlannedJob
from market.run_log import RunOutcome, TaskRun
from market.templatetags.moments import late

#: A worker knows the due time of its job to the millisecond, the plan knows it to the microsecond.
MILLISECOND = timedelta(milliseconds=1)


@dataclass
class Finding:
    """A planned job, its runs in order of attempts, and the problems found; none is the goal."""

    plan: PlannedJob
    runs: list[TaskRun]
    problems: list[str] = field(default_factory=list)

    @property
    def settled(self) -> bool:
        """Whether no further run is expected."""
        if self.plan.expected is ExpectedOutcome.CALLED_OFF:
            return True
        if self.plan.expected is ExpectedOutcome.DEAD:
            return any(run.outcome == RunOutcome.FAILED and run.attempt >= self.plan.attempts for run in self.runs)
        return any(run.outcome == RunOutcome.DONE for run in self.runs)


def match(plans: Iterable[PlannedJob], task_runs: Sequence[TaskRun]) -> list[Finding]:
    """Assign the runs to their planned jobs."""
    return [
        Finding(
            plan, sorted((run for run in task_runs if identity(run) == identity(plan)), key=lambda run: run.attempt)
        )
        for plan in plans
    ]


def identity(thing: PlannedJob | TaskRun) -> tuple[str, int | str]:
    return thing.task, thing.sale_id or thing.subject


def check(plans: Iterable[PlannedJob], task_runs: Sequence[TaskRun]) -> list[Finding]:
    """Check every planned job against its runs."""
    findings = match(plans, task_runs)
    for finding in findings:
        finding.problems = list(problems_of(finding))
    return findings


def problems_of(finding: Finding) -> Iterable[str]:
    """Yield what is wrong with the runs of one job."""
    plan, runs = finding.plan, finding.runs
    if plan.expected is ExpectedOutcome.CALLED_OFF:
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
    yield from attempt_problems(runs)
    # Attempts that a dead worker lost are explained by its death. Every run that ended must fit the expected outcome.
    outcomes = [run.outcome for run in runs if run.outcome != RunOutcome.NONE]
    lost = runs[-1].attempt - len(outcomes)
    expected = [RunOutcome.DONE]
    if plan.expected is ExpectedOutcome.RETRIED and not lost:
        expected = [RunOutcome.FAILED, RunOutcome.DONE]
    elif plan.expected is ExpectedOutcome.DEAD:
        expected = [RunOutcome.FAILED] * max(plan.attempts - lost, 0)
    retried = plan.expected is ExpectedOutcome.RETRIED and outcomes == [RunOutcome.FAILED, RunOutcome.DONE]
    if outcomes != expected and not retried:
        yield f"ended as {', '.join(run.get_outcome_display().lower() for run in runs)}"
    if plan.expected is ExpectedOutcome.KILLED and not (lost and runs[-1].recovered):
        yield "did not lose its worker, or was not recovered"


def attempt_problems(runs: Sequence[TaskRun]) -> Iterable[str]:
    """Yield what is wrong with the numbers of the attempts.

    A number may be missing: a worker can die after it claimed the job and before it wrote the run log. After a run
    without an end, the next one must be a recovery.
    """
    for before, run in zip([None, *runs], runs, strict=False):
        previous = before.attempt if before else 0
        if run.attempt <= previous:
            yield f"has attempt {run.attempt} twice"
        unexplained = run.attempt > previous + 1 or (before is not None and before.outcome == RunOutcome.NONE)
        if unexplained and not run.recovered:
            yield f"has an attempt {run.attempt} that follows none, and is no recovery"


def lateness(findings: Iterable[Finding]) -> tuple[timedelta, timedelta] | None:
    """Return the median and the maximum lateness of first attempts."""
    delays = [finding.runs[0].started - finding.plan.due for finding in findings if finding.runs]
    return (median(delays), max(delays)) if delays else None
