"""Producers: threads that enqueue jobs of all kinds despite all faults, and record what the store accepted."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from django_delayq import enqueue_many
from django_delayq.exceptions import StoreError
from tests.chaos.harness.case import AcceptedJob
from tests.sample_app import tasks

#: The most jobs in one call.
MAX_BATCH = 40
#: Seconds until refused jobs are sent again.
RETRY_DELAY = 0.1


class Producer(threading.Thread):
    """One producer. It enqueues its share of the jobs, as fast as `allowed` lets it."""

    def __init__(self, number: int, *, seed: int, jobs: int, allowed: Callable[[int], bool], poison: float) -> None:
        super().__init__(name=f"producer-{number}", daemon=True)
        self._number, self._jobs, self._allowed, self._poison = number, jobs, allowed, poison
        self._rng = random.Random(f"{seed} {number}")
        self._pause = threading.Event()
        #: id -> the accepted job.
        self.accepted_jobs: dict[str, AcceptedJob] = {}
        #: Ids of jobs that may have been stored although no call confirmed it.
        self.doubtful: set[str] = set()
        #: The number of accepted jobs that need not finish: poison, and jobs that were or may have been cancelled.
        self.unfinished = 0
        #: Calls that ended in an error of the store.
        self.refused = 0
        #: The exception that ended this producer, if any.
        self.failure: Exception | None = None

    def run(self) -> None:
        """Enqueue until all jobs are accepted."""
        try:
            while len(self.accepted_jobs) < self._jobs and not self._pause.is_set():
                if self._allowed(len(self.accepted_jobs)):
                    self._enqueue_batch()
                else:
                    self._pause.wait(0.02)
        except Exception as error:
            self.failure = error

    def stop(self) -> None:
        """Stop soon, with the jobs that are accepted so far."""
        self._pause.set()

    def _enqueue_batch(self) -> None:
        drafts = [
            self._draft() for _ in range(self._rng.randint(1, min(MAX_BATCH, self._jobs - len(self.accepted_jobs))))
        ]
        called_at, sends = time.time(), 1
        ids = [handle.id for handle, _ in drafts]
        for error in self._call_until_accepted(lambda: enqueue_many([handle for handle, _ in drafts])):
            sends += error.maybe_accepted
        for (handle, accepted), job_id in zip(drafts, ids, strict=True):
            if not handle.created:
                # Its unique key was held. If its first send was stored, the job may have run before that.
                self.doubtful |= {job_id} if sends > 1 else set()
            elif handle.draft is None:
                # A job that was sent more than once is due by the first send that arrived.
                due = handle.due.timestamp() if sends == 1 else called_at + accepted.due
                self.accepted_jobs[job_id] = replace(accepted, id=job_id, due=due, sends=sends)
                self.unfinished += accepted.poison
                if not accepted.poison:
                    self._cancel_or_reschedule(handle)
            elif sends > 1:
                self.doubtful.add(job_id)

    def _call_until_accepted(self, call: Callable[[], Any]) -> Iterator[StoreError]:
        """Call until the call succeeds, and yield each error.

        Jobs whose send was not confirmed are sent again under the same id.
        """
        while True:
            try:
                call()
                return
            except StoreError as error:
                self.refused += 1
                yield error
                if error.unsent:
                    call = error.resend
            if self._pause.wait(RETRY_DELAY):
                return

    def _draft(self) -> tuple[Any, AcceptedJob]:
        """Return a job of a random kind and its `AcceptedJob`, whose `due` is still a delay."""
        rng = self._rng
        delay = rng.choice([0, 0, 0, rng.uniform(0, 0.2), rng.uniform(0, 3)])
        if rng.random() < self._poison:
            how = rng.choice(["exit", "kill", "segfault", "memory", "leave"])
            accepted = AcceptedJob(id="", due=delay, max_attempts=tasks.crash.retry.max_attempts, poison=True)
            return tasks.crash.using(delay=delay).job(how), accepted
        options: dict[str, Any] = {"queue": rng.choice(["default", "default", "mail", "bulk"])}
        if rng.random() < 0.1:
            options["key"] = f"key {rng.randrange(50)}"
        if rng.random() < 0.1:
            options["priority"] = rng.randint(-100, 100)
        # Most runs are long enough for a fault to meet them. A worker prefetches few jobs of that length.
        seconds = rng.choice([0.0, rng.uniform(0, 0.05), rng.uniform(0, 0.05), rng.uniform(0, 0.3)])
        fails = int(rng.random() < 0.1)
        accepted = AcceptedJob(id="", due=delay, max_attempts=tasks.work.retry.max_attempts)
        return tasks.work.using(delay=delay, **options).job(seconds, fails=fails), accepted

    def _cancel_or_reschedule(self, handle: Any) -> None:
        """Cancel some jobs and reschedule others, whether or not it is too late for that."""
        draw = self._rng.random()
        if draw < 0.05:
            self._cancel(handle)
        elif draw < 0.1:
            self._reschedule(handle, delay=self._rng.uniform(0, 2))

    def _cancel(self, handle: Any) -> None:
        doubtful, answers = False, []
        for error in self._call_until_accepted(lambda: answers.append(handle.cancel())):
            doubtful = doubtful or error.maybe_accepted
        cancelled_at = time.time() if answers == [True] else None
        self.unfinished += doubtful or cancelled_at is not None
        known = self.accepted_jobs[handle.id]
        self.accepted_jobs[handle.id] = replace(known, cancelled_at=cancelled_at, cancel_doubtful=doubtful)

    def _reschedule(self, handle: Any, *, delay: float) -> None:
        called_at, doubtful, answers = time.time(), False, []
        for error in self._call_until_accepted(lambda: answers.append(handle.reschedule(delay=delay))):
            doubtful = doubtful or error.maybe_accepted
        known, due = self.accepted_jobs[handle.id], called_at + delay
        if doubtful:
            self.accepted_jobs[handle.id] = replace(known, due=min(known.due, due))
        elif answers == [True]:
            self.accepted_jobs[handle.id] = replace(known, due=min(known.due, due), moved=(time.time(), due))
