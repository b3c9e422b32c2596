"""Chain: the classes of `DELAYQ["MIDDLEWARE"]`, each wrapped around the next one, outermost first.

A class has Django's grammar: `__init__(self, next)`, `enqueue(self, job)` returns `self.next.enqueue(job)`, and
`run(self, job)` likewise. `aenqueue` and `arun` are the same for async code. A method that a class lacks passes on.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from inspect import iscoroutinefunction, signature
from types import MappingProxyType
from typing import Any, NoReturn, TypeVar

from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured, MiddlewareNotUsed
from django.utils.module_loading import import_string

from django_delayq.clock import moment
from django_delayq.conf.settings import get_config, on_config_dropped, place_of
from django_delayq.job.ids import created_us
from django_delayq.job.job import Job
from django_delayq.middleware.job_thread import in_job_thread
from django_delayq.recurring.schedule import Schedule

#: What is made of a new job: its handle.
H = TypeVar("H")
#: What a middleware enters once for a batch.
V = TypeVar("V")
#: The methods that a class may have, and the async form of each.
_METHODS = {"enqueue": "aenqueue", "run": "arun"}


class EnqueueBatch(ExitStack):
    """One call of `task.enqueue_many()`, which all its jobs share. Used by one thread at a time."""

    def __init__(self) -> None:
        super().__init__()
        #: Number of jobs that have passed the middlewares so far.
        self.count = 0
        self._entered: dict[object, Any] = {}

    def once(self, owner: object, make: Callable[[], AbstractContextManager[V]]) -> V:
        """Return the value of what `make` returns, which is entered at the first job and left when the call ends.

        `owner` is the middleware that asks. An exception of the call, also one of the sending, is passed to its exit.
        """
        if owner not in self._entered:
            self._entered[owner] = self.enter_context(make())
        value: V = self._entered[owner]
        return value


class MiddlewareJob:
    """The job as a middleware sees it. Only `context` can be changed, and only before `next.enqueue(job)`."""

    __slots__ = (
        *("_acall", "_call", "_find_schedule", "_job", "_times_us", "_will_retry"),
        *("attempt", "batch", "context"),
    )

    def __init__(
        self,
        job: Job,
        call: Callable[[], Any],
        acall: Callable[[], Awaitable[Any]] | None = None,
        *,
        attempt: int | None = None,
        times_us: tuple[int, int] | None = None,
        batch: EnqueueBatch | None = None,
        will_retry: Callable[[BaseException], bool] | None = None,
        find_schedule: Callable[[], Schedule | None] | None = None,
    ) -> None:
        """`call` does what the chain is wrapped around; `acall` does it in an event loop, if that differs.

        `times_us` are those of an attempt: when it was due and when it was claimed, in µs of Redis's clock.
        """
        self._job, self._call, self._acall = job, call, acall
        self._will_retry, self._find_schedule = will_retry, find_schedule
        self._times_us = times_us
        #: The call of `task.enqueue_many()` that makes the job; None for other jobs, and at the run.
        self.batch = batch
        #: The number of the attempt, from 1; None at the enqueue.
        self.attempt = attempt
        #: A dict of JSON values that travels in the job, at most 4 KiB. In `run()` it is a copy.
        self.context: dict[str, Any] = deepcopy(job.context) if job.context else {}

    @property
    def id(self) -> str:
        """The id of the job, already known at the enqueue."""
        return self._job.id

    @property
    def task(self) -> str:
        """The name of the task."""
        return self._job.task

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self._job.queue

    @property
    def priority(self) -> int:
        """The priority, −100 to 100; a larger one runs first."""
        return self._job.priority

    @property
    def key(self) -> str | None:
        """The unique key, if the job has one."""
        return self._job.key

    @property
    def args(self) -> tuple[Any, ...]:
        """A copy of the positional arguments."""
        return tuple(deepcopy(self._job.args))

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """A copy of the keyword arguments."""
        return MappingProxyType(deepcopy(self._job.kwargs))

    @property
    def enqueued(self) -> datetime:
        """When the job was made, aware, in UTC, by the clock of the process that made it."""
        return moment(created_us(self._job.raw_id))

    @property
    def due(self) -> datetime | None:
        """When this attempt was due, aware, in UTC; None at the enqueue."""
        return None if self._times_us is None else moment(self._times_us[0])

    @property
    def late(self) -> timedelta | None:
        """How long after its due time a worker claimed this attempt; None at the enqueue."""
        if self._times_us is None:
            return None
        due_us, claimed_us = self._times_us
        # The due time is known to the millisecond.
        return timedelta(microseconds=max(0, claimed_us - due_us))

    @property
    def schedule(self) -> str | None:
        """The name of the recurring schedule that made the job, among those of its task; None for other jobs."""
        return self._job.occurrence.schedule if self._job.occurrence else None

    @property
    def occurrence(self) -> datetime | None:
        """The occurrence for which the job runs, aware, in UTC; None for other jobs, and for those of `run_now()`."""
        found = self._job.occurrence
        return moment(found.moment_us) if found and found.moment_us is not None else None

    def will_retry(self, error: BaseException) -> bool:
        """Return whether another attempt follows this one, if it ends with that exception; False at the enqueue."""
        return self._will_retry is not None and self._will_retry(error)

    def find_schedule(self) -> Schedule | None:
        """Return the recurring schedule of the job as it is now; None if there is none, or at the enqueue.

        One round trip, so not in an event loop. Raises `StoreError`.
        """
        return None if self._find_schedule is None else self._find_schedule()

    def __repr__(self) -> str:
        # Without arguments and context: error reports show the variables of middlewares.
        return f"<MiddlewareJob {self.id} of {self.task}>"


@dataclass(frozen=True, slots=True)
class Link:
    """What a middleware has as `next`: the four methods of the next one, or of the package itself."""

    enqueue: Callable[[MiddlewareJob], Any]
    aenqueue: Callable[[MiddlewareJob], Awaitable[Any]]
    run: Callable[[MiddlewareJob], Any]
    arun: Callable[[MiddlewareJob], Awaitable[Any]]


class Chain:
    """The middlewares of one store, built once in each process. Used by any thread and event loop."""

    def __init__(self, paths: tuple[str, ...], *, setting: str) -> None:
        """`setting` names the list in errors. Raises ImproperlyConfigured for a path that names no middleware."""
        self._setting = setting
        link = Link(_call, _acall, _call, _acall)
        for path in reversed(paths):
            middleware_class, problem = _import(path)
            if problem:
                raise ImproperlyConfigured(f"{setting} names {path!r:.200}, {problem}")
            try:
                middleware = middleware_class(link)
            except MiddlewareNotUsed:
                continue
            except Exception as error:
                raise ImproperlyConfigured(
                    f"{setting} names {path!r:.200}, whose __init__(self, next) raised {type(error).__name__}: {error}"
                ) from error
            link = _wrap(middleware, link)
        self._outermost = link
        self._enqueue = _without_stop(link.enqueue)

    def enqueue(self, job: Job, make: Callable[[dict[str, Any]], H], batch: EnqueueBatch | None = None) -> H:
        """Pass a new job through; `make` is called with its context and returns its handle, which is returned."""
        made: list[H] = []
        seen = _new(job, make, made, batch)
        return self._checked(self._enqueue(seen), made, job)

    async def aenqueue(self, job: Job, make: Callable[[dict[str, Any]], H], batch: EnqueueBatch | None = None) -> H:
        """Do what `enqueue()` does, from async code."""
        made: list[H] = []
        seen = _new(job, make, made, batch)
        return self._checked(await self._outermost.aenqueue(seen), made, job)

    def run(self, job: MiddlewareJob) -> Any:
        """Pass an attempt through; returns what the outermost middleware returns."""
        return self._outermost.run(job)

    async def arun(self, job: MiddlewareJob) -> Any:
        """Do what `run()` does in an event loop. A class without `arun` waits in the thread of the job meanwhile."""
        return await self._outermost.arun(job)

    def _checked(self, returned: Any, made: list[H], job: Job) -> H:
        if not made:
            self._refuse(job, "did not call next.enqueue(); call it, or raise an exception to refuse the job")
        if len(made) > 1:
            # Again here: a middleware may have caught the error of its second call.
            self._refuse(job, "called next.enqueue() twice; call it once")
        if returned is not made[0]:
            name = type(returned).__name__
            self._refuse(job, f"returned {name} from enqueue(); return what next.enqueue(job) returns")
        return made[0]

    def _refuse(self, job: Job, reason: str) -> NoReturn:
        raise TypeError(f"a class of {self._setting} {reason}: job of {job.task} was not enqueued")


@cache
def get_chain(backend: str | None = None) -> Chain | None:
    """Return the chain of DELAYQ, or of an alias in TASKS; None if it has no middleware.

    Raises ImproperlyConfigured.
    """
    paths = get_config(backend).tasks.middleware
    return Chain(paths, setting=place_of("MIDDLEWARE", backend)) if paths else None


def problem_of(path: str) -> str:
    """Return why a path names no middleware, with the cure; "" if it names one."""
    return _import(path)[1]


def _import(path: str) -> tuple[Any, str]:
    """Return the class of a path and "", or None and the end of a sentence."""
    try:
        found = import_string(path)
    except Exception as error:
        # The module is the project's own, and may raise anything.
        return None, f"which cannot be imported ({type(error).__name__}: {error}); write the path of a class"
    if not isinstance(found, type):
        return None, f"which is {type(found).__name__!r}, not a class; write a class with __init__(self, next)"
    names = [*_METHODS, *_METHODS.values()]
    if not any(callable(getattr(found, name, None)) for name in names):
        return None, f"which has none of the methods {', '.join(names)}; define one of them"
    for plain, coroutine in _METHODS.items():
        if iscoroutinefunction(getattr(found, plain, None)):
            return None, f"whose method {plain} is async; rename it {coroutine}"
        if hasattr(found, coroutine) and not iscoroutinefunction(getattr(found, coroutine)):
            return None, f"whose method {coroutine} is not async; write `async def {coroutine}`"
    return found, "" if _takes_next(found) else "whose __init__ does not take next; define __init__(self, next)"


def _takes_next(middleware_class: Any) -> bool:
    try:
        signature(middleware_class).bind(None)
    except TypeError:
        return False
    except ValueError:
        # Python cannot read the signatures of some classes; building them shows whether they fit.
        return True
    return True


def _wrap(middleware: Any, inner: Link) -> Link:
    """Return the link of a middleware; of a method that it has in one form only, the other form is adapted."""
    methods: dict[str, Any] = {}
    for plain, coroutine in _METHODS.items():
        sync: Any = getattr(middleware, plain, None)
        in_loop: Any = getattr(middleware, coroutine, None)
        if sync is None and in_loop is None:
            sync, in_loop = getattr(inner, plain), getattr(inner, coroutine)
        # In the thread of the caller's transactions, or of the job, as Django's middlewares.
        methods[plain] = sync or async_to_sync(in_loop)
        methods[coroutine] = in_loop or in_job_thread(_without_stop(sync))
    return Link(**methods)


def _without_stop(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a method whose StopIteration becomes a RuntimeError.

    It would end an iterator that makes jobs, and the rest would be lost.
    """

    def call(job: Any) -> Any:
        try:
            return method(job)
        except StopIteration as error:
            raise RuntimeError(f"StopIteration was raised inside the middlewares of a job of {job.task}") from error

    return call


def _call(job: MiddlewareJob) -> Any:
    return _own(job)._call()


async def _acall(job: MiddlewareJob) -> Any:
    job = _own(job)
    return job._call() if job._acall is None else await job._acall()


def _own(job: Any) -> MiddlewareJob:
    if not isinstance(job, MiddlewareJob):
        raise TypeError(
            f"a middleware passed {type(job).__name__} on; next.enqueue() and next.run() take the job that it received"
        )
    return job


def _new(job: Job, make: Callable[[dict[str, Any]], H], made: list[H], batch: EnqueueBatch | None) -> MiddlewareJob:
    """Return a new job as middlewares see it; its handle is put into `made`, at each call once more."""

    def call() -> H:
        if made:
            made.append(made[0])
            raise TypeError(f"a middleware called next.enqueue() twice for one job of {job.task}; call it once")
        made.append(make(seen.context))
        if batch is not None:
            batch.count += 1
        return made[0]

    seen = MiddlewareJob(job, call, batch=batch)
    return seen


on_config_dropped.append(get_chain.cache_clear)
