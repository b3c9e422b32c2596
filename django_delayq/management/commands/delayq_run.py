"""manage.py delayq_run: claim one waiting job and run it here, in the foreground."""

import os
import pdb
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_delayq.display.text import printable
from django_delayq.job.ids import from_text
from django_delayq.job.job import State
from django_delayq.job.outcome import Action, OutcomeKind
from django_delayq.management.operating import (
    FAILED,
    JOB_FAILED,
    NOT_FOUND,
    RUNS_ELSEWHERE,
    OperatingCommand,
    call_text,
    iso,
)
from django_delayq.processes.shutdown import Shutdown
from django_delayq.store.queries.job_pages import JobRow
from django_delayq.task import registry
from django_delayq.worker.foreground import ForegroundRun, run_one

#: Outcomes that are no failure of the job: the exit code is 0.
_FINE = (OutcomeKind.SUCCEEDED, OutcomeKind.RETRY_REQUESTED, OutcomeKind.SNOOZED, OutcomeKind.STOPPED)
_ENDS = {
    Action.ACKNOWLEDGE: "done",
    Action.RETRY: "to be run again",
    Action.DEAD_LETTER: "failed for good",
    Action.CANCEL: "cancelled",
    Action.RELEASE: "waits again",
}


class Command(OperatingCommand):
    """Run one job in this process."""

    help = "Claims one scheduled or ready job and runs it here, in the foreground, without a time limit."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument("id", metavar="ID", help="The id of the job.")
        text = "Open the debugger where the task raises. breakpoint() in the task opens it without this option, too."
        parser.add_argument("--pdb", action="store_true", help=text)
        super().add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the job and print how it ended."""
        store, place = self.open(options), from_text(options["id"])
        if place is None or not store.has_shard(place[1]):
            raise CommandError(f"{options['id']!r:.80} is not the id of a job.", returncode=NOT_FOUND)
        raw_id, shard = place
        row = store.find(raw_id, shard, with_lease=True)
        _check(row)
        if options["dry_run"]:
            self.print_result(options, f"Would run {call_text(row, store)}.", dry_run=True, id=row.id)
            return
        self.confirm(f"Run {call_text(row, store)} here?", options)
        on_exception = _post_mortem if options["pdb"] else lambda _: None
        threads = threading.enumerate()
        with _to_stderr() if options["json"] else nullcontext():
            ran = run_one(store.shards[row.shard], raw_id, on_exception=on_exception)
        if ran is None:
            # A worker claimed it meanwhile, or somebody cancelled it.
            _check(store.find(raw_id, row.shard, with_lease=True))
            raise CommandError(f"Job {row.id} no longer waits.", returncode=NOT_FOUND)
        code = self._print(ran, row, options)
        left = (each for each in threading.enumerate() if not each.daemon and each not in threads)
        if ran.outcome.kind is OutcomeKind.INTERRUPTED and any(left):
            # The thread of a coroutine, for which Python would wait, though Redis has the job back.
            Shutdown().end_process(code)
        if code:
            raise SystemExit(code)

    def _print(self, ran: ForegroundRun, row: JobRow, options: dict[str, Any]) -> int:
        """Print how it ended; return the exit code."""
        outcome, decision = ran.outcome, ran.settlement.decision
        end = (
            "refused, because its lease was lost: it may run elsewhere, or have ended"
            if ran.lost
            else _ENDS[decision.action]
        )
        seconds = outcome.run_us / 1_000_000
        if outcome.error and not options["json"]:
            self.stderr.write(printable(outcome.error, lines=True))
        self.print_result(
            options,
            f"Job {row.id}: {outcome.kind} after {seconds:.3f} s, {end}.",
            id=row.id,
            outcome=outcome.kind.value,
            seconds=seconds,
            attempt=ran.claim.attempt,
            end=end,
            error=outcome.error,
        )
        return JOB_FAILED if ran.lost or outcome.kind not in _FINE else 0


@contextmanager
def _to_stderr() -> Iterator[None]:
    """Send what the task and its child processes print to standard error: standard output is for the JSON."""
    sys.stdout.flush()
    stdout = os.dup(1)
    try:
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        # What was written to the old object, such as that of a log handler.
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)


def _check(row: JobRow) -> None:
    """Refuse a job that cannot be run here, with the cure."""
    match row.state:
        case State.SCHEDULED | State.READY:
            if registry.find(row.task) is None:
                text = f"No task is registered as {row.task!r:.200} here: run the job with the code that has it."
                raise CommandError(text, returncode=FAILED)
        case State.CLAIMED:
            since = f" since {iso(row.claimed_us)}" if row.claimed_us else ""
            text = f"Job {row.id} runs on {row.worker or 'another worker'}{since}. Wait for its end, or stop it."
            raise CommandError(text, returncode=RUNS_ELSEWHERE)
        case State.DEAD:
            text = f"Job {row.id} has failed for good: delayq_requeue {row.id} --yes makes it ready, then run it."
            raise CommandError(text, returncode=NOT_FOUND)
        case _:
            raise CommandError(f"Job {row.id} does not wait: it is {row.state}.", returncode=NOT_FOUND)


def _post_mortem(error: BaseException) -> None:
    traceback = error.__traceback__
    # The frames of the task are the last ones.
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
    pdb.post_mortem(traceback)
