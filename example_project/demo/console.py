"""Console: the demo's live log and its summary, in columns, and in colour on a terminal."""

import os
import sys
import time
from collections.abc import Iterable, Sequence

from demo.checker import Finding, lateness
from demo.plan import ExpectedOutcome
from market.run_log import RunOutcome, TaskRun
from market.templatetags.moments import late

COLOURS = {"quiet": "2", "good": "32", "bad": "31", "warm": "33", "bold": "1"}
WORDS = {"open_sale": "opened", "close_bids": "closed", "send_reminder": "reminded"}


class Console:
    """Prints to standard output. Times are seconds since the scenario began."""

    def __init__(self) -> None:
        self.coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self.began = time.monotonic()

    def paint(self, colour: str, text: str) -> str:
        return f"\033[{COLOURS[colour]}m{text}\033[0m" if self.coloured else text

    def write(self, text: str = "") -> None:
        print(text, flush=True)

    def heading(self, name: str, text: str) -> None:
        """Print one line of the heading."""
        self.write(f"  {self.paint('quiet', f'{name:<12}')}{text}")

    def log(self, word: str, what: str, note: str = "", colour: str = "bold") -> None:
        """Print one line of the log, with the time since the scenario began."""
        passed = self.paint("quiet", f"{time.monotonic() - self.began:8.2f} s")
        self.write(f"{passed}  {self.paint(colour, f'{word:<13}')}{what:<30}{self.paint('quiet', note)}".rstrip())

    def log_run(self, run: TaskRun) -> None:
        """Print a run that has ended."""
        note = f"{late(run.lateness)} after its time"
        if run.attempt > 1:
            note += f", attempt {run.attempt}{' after a crash' if run.recovered else ''}"
        word, colour = WORDS.get(run.task, "done"), "good"
        if run.outcome == RunOutcome.FAILED:
            word, colour, note = "failed", "bad", f"{run.error}, attempt {run.attempt}"
        elif run.outcome == RunOutcome.LATER:
            word, colour = "put off", "warm"
        self.log(word, name_of(run), note, colour)

    def table(self, rows: Sequence[Sequence[str]], *, right: Iterable[int] = ()) -> None:
        """Print rows in aligned columns; the first row is the heading."""
        right = set(right)
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        for number, row in enumerate(rows):
            cells = (
                f"{cell:>{width}}" if i in right else f"{cell:<{width}}"
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            line = "  " + "  ".join(cells).rstrip()
            self.write(self.paint("quiet", line) if not number else line)

    def summary(self, findings: Sequence[Finding], problems: Sequence[str]) -> None:
        """Print every scheduled job with its outcome, and the verdict."""
        self.write()
        rows = [("", "job", "for", "late", "runs", "it …")]
        for finding in sorted(findings, key=lambda finding: finding.plan.due):
            plan, runs = finding.plan, finding.runs
            delay = late(runs[0].started - plan.due) if runs else "–"
            rows.append(
                (
                    "✗" if finding.problems else "✓",
                    plan.task,
                    plan.subject,
                    delay,
                    str(len(runs)),
                    plan.expected.value,
                )
            )
        self.table(rows, right=(3, 4))
        self.write()
        expected_runs = [finding for finding in findings if finding.plan.expected is not ExpectedOutcome.CALLED_OFF]
        ran = sum(bool(finding.runs) for finding in expected_runs)
        early = sum(run.started < finding.plan.due for finding in findings for run in finding.runs)
        delays = lateness(findings)
        self.write(f"  {ran} of {len(expected_runs)} scheduled jobs ran, {early} early.")
        if delays:
            median, maximum = map(late, delays)
            self.write(f"  First attempts began {median} after their time (median), {maximum} at the latest.")
        of_jobs = [
            f"{finding.plan.task} for {finding.plan.subject} {problem}"
            for finding in findings
            for problem in finding.problems
        ]
        for problem in [*of_jobs, *problems]:
            self.write(self.paint("bad", f"  ✗ {problem}"))
        if not of_jobs and not problems:
            self.write(self.paint("good", "  ✓ Everything happened as promised."))


def name_of(run: TaskRun) -> str:
    return str(run.sale) if run.sale_id else f"{run.task} {run.subject}"
