"""Console: the demo's live log and its summary, in columns, in colour where somebody looks."""

import os
import sys
import time
from collections.abc import Iterable, Sequence

from market.ledger import Ending, LedgerEntry
from market.templatetags.moments import late
from stage.judge import Finding, lateness
from stage.plan import Fate

COLOURS = {"quiet": "2", "good": "32", "bad": "31", "warm": "33", "bold": "1"}
WORDS = {"open_sale": "opened", "close_bids": "closed", "send_reminder": "reminded"}


class Console:
    """Prints to standard output. Times are seconds since the scenario began."""

    def __init__(self) -> None:
        self.coloured = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self.began = time.monotonic()

    def paint(self, colour: str, text: str) -> str:
        return f"\033[{COLOURS[colour]}m{text}\033[0m" if self.coloured else text

    def say(self, text: str = "") -> None:
        print(text, flush=True)

    def fact(self, name: str, text: str) -> None:
        """One line of the heading."""
        self.say(f"  {self.paint('quiet', f'{name:<12}')}{text}")

    def event(self, word: str, what: str, note: str = "", colour: str = "bold") -> None:
        """One line of the log."""
        passed = self.paint("quiet", f"{time.monotonic() - self.began:8.2f} s")
        self.say(f"{passed}  {self.paint(colour, f'{word:<13}')}{what:<30}{self.paint('quiet', note)}".rstrip())

    def run(self, entry: LedgerEntry) -> None:
        """One run that has ended."""
        note = f"{late(entry.lateness)} after its time"
        if entry.attempt > 1:
            note += f", attempt {entry.attempt}{' after a crash' if entry.recovered else ''}"
        word, colour = WORDS.get(entry.task, "done"), "good"
        if entry.ending == Ending.FAILED:
            word, colour, note = "failed", "bad", f"{entry.error}, attempt {entry.attempt}"
        elif entry.ending == Ending.LATER:
            word, colour = "put off", "warm"
        self.event(word, name_of(entry), note, colour)

    def table(self, rows: Sequence[Sequence[str]], *, right: Iterable[int] = ()) -> None:
        """Rows in columns as wide as they need; the first row is the heading."""
        right = set(right)
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        for number, row in enumerate(rows):
            cells = (
                f"{cell:>{width}}" if i in right else f"{cell:<{width}}"
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            line = "  " + "  ".join(cells).rstrip()
            self.say(self.paint("quiet", line) if not number else line)

    def summary(self, findings: Sequence[Finding], problems: Sequence[str]) -> None:
        """Every scheduled job with what became of it, and the verdict."""
        self.say()
        rows = [("", "job", "for", "late", "runs", "it …")]
        for finding in sorted(findings, key=lambda finding: finding.plan.due):
            plan, runs = finding.plan, finding.runs
            delay = late(runs[0].started - plan.due) if runs else "–"
            rows.append(
                (
                    "✗" if finding.wrong else "✓",
                    plan.task,
                    plan.subject,
                    delay,
                    str(len(runs)),
                    plan.fate.value,
                )
            )
        self.table(rows, right=(3, 4))
        self.say()
        wanted = [finding for finding in findings if finding.plan.fate is not Fate.CALLED_OFF]
        ran = sum(bool(finding.runs) for finding in wanted)
        early = sum(run.started < finding.plan.due for finding in findings for run in finding.runs)
        usual = lateness(findings)
        self.say(f"  {ran} of {len(wanted)} scheduled jobs ran, {early} early.")
        if usual:
            median, most = map(late, usual)
            self.say(f"  First attempts began {median} after their time (median), {most} at the latest.")
        wrong = [
            f"{finding.plan.task} for {finding.plan.subject} {fault}" for finding in findings for fault in finding.wrong
        ]
        for fault in [*wrong, *problems]:
            self.say(self.paint("bad", f"  ✗ {fault}"))
        if not wrong and not problems:
            self.say(self.paint("good", "  ✓ Everything happened as promised."))


def name_of(entry: LedgerEntry) -> str:
    return str(entry.sale) if entry.sale_id else f"{entry.task} {entry.subject}"
