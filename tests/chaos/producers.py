"""Producers: threads that enqueue all kinds of jobs through whatever happens, and take down what they were promised."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from django_delayq import enqueue_many
from django_delayq.exceptions import StoreError
from tests.chaos.case import Promise
from tests.sample_app import tasks

#: Jobs in one call, at most.
SLICE = 40
#: Seconds until what was refused is sent again.
AGAIN = 0.1


class Producer(threading.Thread):
    """One producer: enqueues a share of the jobs, as fast as `allowed` lets it."""

    def __init__(self, number: int, *, seed: int, jobs: int, allowed: Callable[[int], bool], poison: float) -> None:
        super().__init__(name=f"producer-{number}", daemon=True)
        self._number, self._jobs, self._allowed, self._poison = number, jobs, allowed, poison
        self._chance = random.Random(f"{seed} {number}")
        self._pause = threading.Event()
        #: id -> what was promised.
        self.promises: dict[str, Promise] = {}
        #: Ids that may have been stored without anybody having been told so.
        self.doubtful: set[str] = set()
        #: Accepted jobs that will not run to an end: poison, and what was, or may have been, cancelled.
        self.unfinished = 0
        #: Calls that ended in an error of the store.
        self.refused = 0
        #: What ended this producer, if anything did.
        self.failure: Exception | None = None

    def run(self) -> None:
        """Enqueue until all are accepted."""
        try:
            while len(self.promises) < self._jobs and not self._pause.is_set():
                if self._allowed(len(self.promises)):
                    self._enqueue_slice()
                else:
                    self._pause.wait(0.02)
        except Exception as error:
            self.failure = error

    def give_up(self) -> None:
        """End soon, with what was accepted so far."""
        self._pause.set()

    def _enqueue_slice(self) -> None:
        drafts = [self._draft() for _ in range(self._chance.randint(1, min(SLICE, self._jobs - len(self.promises))))]
        called_at, lives = time.time(), 1
        ids = [handle.id for handle, _ in drafts]
        for error in self._tries(lambda: enqueue_many([handle for handle, _ in drafts])):
            lives += error.maybe_accepted
        for (handle, promise), job_id in zip(drafts, ids, strict=True):
            if not handle.created:
                # Its key was held; where its first send may have been stored, it may have run before that.
                self.doubtful |= {job_id} if lives > 1 else set()
            elif handle.draft is None:
                # What was sent more than once is due by the first of the sends that arrived.
                due = handle.due.timestamp() if lives == 1 else called_at + promise.due
                self.promises[job_id] = replace(promise, id=job_id, due=due, lives=lives)
                self.unfinished += promise.poison
                if not promise.poison:
                    self._change_mind(handle)
            elif lives > 1:
                self.doubtful.add(job_id)

    def _tries(self, call: Callable[[], Any]) -> Iterator[StoreError]:
        """Call until it is answered; yields each error. What was not surely sent is sent again under its own id."""
        while True:
            try:
                call()
                return
            except StoreError as error:
                self.refused += 1
                yield error
                if error.unsent:
                    call = error.resend
            if self._pause.wait(AGAIN):
                return

    def _draft(self) -> tuple[Any, Promise]:
        """Return a job of any kind, and what is promised of it; `due` is still a delay."""
        chance = self._chance
        delay = chance.choice([0, 0, 0, chance.uniform(0, 0.2), chance.uniform(0, 3)])
        if chance.random() < self._poison:
            how = chance.choice(["exit", "kill", "segfault", "memory", "leave"])
            promise = Promise(id="", due=delay, max_attempts=tasks.crash.retry.max_attempts, poison=True)
            return tasks.crash.using(delay=delay).job(how), promise
        options: dict[str, Any] = {"queue": chance.choice(["default", "default", "mail", "bulk"])}
        if chance.random() < 0.1:
            options["key"] = f"key {chance.randrange(50)}"
        if chance.random() < 0.1:
            options["priority"] = chance.randint(-100, 100)
        # Mostly long enough for a fault to meet them; a worker holds few of such.
        seconds = chance.choice([0.0, chance.uniform(0, 0.05), chance.uniform(0, 0.05), chance.uniform(0, 0.3)])
        fails = int(chance.random() < 0.1)
        promise = Promise(id="", due=delay, max_attempts=tasks.work.retry.max_attempts)
        return tasks.work.using(delay=delay, **options).job(seconds, fails=fails), promise

    def _change_mind(self, handle: Any) -> None:
        """Cancel some jobs and give some another time, whether or not that is too late."""
        draw = self._chance.random()
        if draw < 0.05:
            self._cancel(handle)
        elif draw < 0.1:
            self._reschedule(handle, delay=self._chance.uniform(0, 2))

    def _cancel(self, handle: Any) -> None:
        doubtful, answers = False, []
        for error in self._tries(lambda: answers.append(handle.cancel())):
            doubtful = doubtful or error.maybe_accepted
        cancelled_at = time.time() if answers == [True] else None
        self.unfinished += doubtful or cancelled_at is not None
        known = self.promises[handle.id]
        self.promises[handle.id] = replace(known, cancelled_at=cancelled_at, cancel_doubtful=doubtful)

    def _reschedule(self, handle: Any, *, delay: float) -> None:
        called_at, doubtful, answers = time.time(), False, []
        for error in self._tries(lambda: answers.append(handle.reschedule(delay=delay))):
            doubtful = doubtful or error.maybe_accepted
        known, due = self.promises[handle.id], called_at + delay
        if doubtful:
            self.promises[handle.id] = replace(known, due=min(known.due, due))
        elif answers == [True]:
            self.promises[handle.id] = replace(known, due=min(known.due, due), moved=(time.time(), due))
