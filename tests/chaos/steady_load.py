"""Trickle: jobs enqueued one after another while something goes wrong, and the judge of what became of them."""

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Self

from django_delayq import enqueue_many
from django_delayq.exceptions import StoreError
from tests.sample_app import tasks
from tests.subprocesses import Command, Processes, until

#: Seconds between two jobs, and the delay of every other one.
PAUSE, DELAY = 0.01, 0.3
#: A lapsed lease, counted or not: the mark that confirms a claim is a write, which a refusal of writes refuses, too.
_LAPSED = re.compile(r"Job ([^\s:]+)(?: of .*: its lease lapsed|: worker \S+ did not confirm its claim)")


def now_and_later(number: int) -> Any:
    """Make a job that is due at once or, every other one, a little later."""
    return tasks.record.using(delay=DELAY if number % 2 else None).job(number)


class SteadyLoad:
    """Enqueue in a thread until left; what is refused is not sent again."""

    def __init__(self, make: Callable[[int], Any] = now_and_later) -> None:
        self._make = make
        #: id -> moment before which it may not start.
        self.accepted: dict[str, float] = {}
        self.doubtful: dict[str, float] = {}
        self.refused: dict[str, float] = {}
        self.errors: list[StoreError] = []
        #: Anything else that enqueueing raised: a bug.
        self.faults: list[Exception] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Enqueue no more."""
        self._over.set()
        self._thread.join()

    def until_error(self) -> StoreError:
        """Wait for the next error and return it."""
        seen = len(self.errors)
        return until(lambda: self.errors[seen:], what="an error of the producer")[0]

    def until_accepted(self, count: int = 20) -> None:
        """Wait until so many more were accepted."""
        enough = len(self.accepted) + count
        until(
            lambda: len(self.accepted) >= enough, what=f"{count} accepted jobs", details=lambda: f"{self.errors[-1:]}"
        )

    def _run(self) -> None:
        number = 0
        while not self._over.wait(PAUSE):
            job = self._make(number)
            earliest = time.time() + (DELAY if number % 2 and self._make is now_and_later else 0)
            number += 1
            try:
                enqueue_many([job])
                self.accepted[job.id] = earliest
            except StoreError as error:
                (self.doubtful if error.maybe_accepted else self.refused)[job.id] = earliest
                self.errors.append(error)
            except Exception as fault:
                self.faults.append(fault)

    def judge(self, processes: Processes, commands: Sequence[Command]) -> None:
        """Once all have ended: none was lost, early, ran although it was refused, or twice while its lease held."""
        excused = {job for command in commands for job in _LAPSED.findall(command.output)}
        runs = processes.runs()
        ran = Counter(run["id"] for run in runs)
        assert self.faults == []
        assert len(self.accepted) > 10 < len(ran), "too little happened"
        assert self.accepted.keys() - ran.keys() == set(), "lost"
        assert self.refused.keys() & ran.keys() == set(), "refused, and yet ran"
        assert ran.keys() - self.accepted.keys() - self.doubtful.keys() == set(), "never enqueued"
        assert {job for job, count in ran.items() if count > 1} <= excused, "doubled"
        sent = self.accepted | self.doubtful
        assert [run for run in runs if run["at"] < sent[run["id"]]] == [], "early"
