"""Steady load: jobs that a thread enqueues one after another during a fault, and a check of their runs."""

import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from django_delayq import enqueue_many
from django_delayq.exceptions import StoreError
from tests.chaos.harness.repeated import Repeated
from tests.sample_app import tasks
from tests.subprocesses import Command, Processes, until

#: Seconds between two jobs, and the delay of every second job.
PAUSE, DELAY = 0.01, 0.3
#: An expired lease, counted or not. The confirmation of a claim is a write, so a server that refuses writes refuses
#: it too.
_EXPIRED_LEASE = re.compile(r"Job ([^\s:]+)(?: of .*: its lease expired|: worker \S+ did not confirm its claim)")


def now_and_later(number: int) -> Any:
    """Make a job that is due at once or, for every second number, after DELAY."""
    return tasks.record.using(delay=DELAY if number % 2 else None).job(number)


class SteadyLoad(Repeated):
    """Enqueue from a thread inside a `with` block. Refused jobs are not sent again."""

    def __init__(self, make: Callable[[int], Any] = now_and_later) -> None:
        super().__init__(every=PAUSE)
        self._make, self._number = make, 0
        #: id -> the earliest time at which the job may start.
        self.accepted: dict[str, float] = {}
        self.doubtful: dict[str, float] = {}
        self.refused: dict[str, float] = {}
        self.errors: list[StoreError] = []
        #: Any other exception of an enqueue, which is a bug.
        self.unexpected_errors: list[Exception] = []

    def until_error(self) -> StoreError:
        """Wait for the next error and return it."""
        seen = len(self.errors)
        return until(lambda: self.errors[seen:], what="an error of the producer")[0]

    def until_accepted(self, count: int = 20) -> None:
        """Wait until that many more jobs are accepted."""
        enough = len(self.accepted) + count
        until(
            lambda: len(self.accepted) >= enough, what=f"{count} accepted jobs", details=lambda: f"{self.errors[-1:]}"
        )

    def step(self) -> None:
        """Enqueue the next job."""
        number, self._number = self._number, self._number + 1
        job = self._make(number)
        earliest = time.time() + (DELAY if number % 2 and self._make is now_and_later else 0)
        try:
            enqueue_many([job])
            self.accepted[job.id] = earliest
        except StoreError as error:
            (self.doubtful if error.maybe_accepted else self.refused)[job.id] = earliest
            self.errors.append(error)
        except Exception as fault:
            self.unexpected_errors.append(fault)

    def check(
        self, processes: Processes, commands: Sequence[Command], *, forgotten: Sequence[tuple[float, float]] = ()
    ) -> None:
        """Check, after all jobs have ended: none is lost, early, run although refused, or repeated within its lease.

        `forgotten` are periods, in seconds since the epoch, whose last steps a new primary may not know: jobs that
        began in them may be repeated.
        """
        expired = {job for command in commands for job in _EXPIRED_LEASE.findall(command.output)}
        runs = processes.runs()
        ran = Counter(run["id"] for run in runs)
        assert self.unexpected_errors == []
        assert len(self.accepted) > 10 < len(ran), "too few jobs"
        assert self.accepted.keys() - ran.keys() == set(), "lost"
        assert self.refused.keys() & ran.keys() == set(), "refused, but ran"
        assert ran.keys() - self.accepted.keys() - self.doubtful.keys() == set(), "never enqueued"
        expired |= {run["id"] for run in runs for begin, end in forgotten if begin <= run["at"] <= end}
        assert {job for job, count in ran.items() if count > 1} <= expired, "repeated"
        sent = self.accepted | self.doubtful
        assert [run for run in runs if run["at"] < sent[run["id"]]] == [], "early"
