"""Chain: the classes of `DELAYQ["MIDDLEWARE"]`, each wrapped around the next one, outermost first.

A class has Django's grammar: `__init__(self, next)`, `enqueue(self, job)` returns `self.next.enqueue(job)`, and
`run(self, job)` likewise. `aenqueue` and `arun` are the same for async code. A method that a class lacks passes on.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from inspect import iscoroutinefunction, signature
from typing import Any, NoReturn, TypeVar

from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured, MiddlewareNotUsed
from django.utils.module_loading import import_string

from django_delayq.conf.settings import get_config, on_config_dropped, place_of
from django_delayq.job.job import Job
from django_delayq.middleware.enqueue_batch import EnqueueBatch
from django_delayq.middleware.job import MiddlewareJob, acall_job, call_job
from django_delayq.middleware.job_thread import in_job_thread

#: What is made of a new job: its handle.
H = TypeVar("H")
#: The methods that a class may have, and the async form of each.
_METHODS = {"enqueue": "aenqueue", "run": "arun"}


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
        link = Link(call_job, acall_job, call_job, acall_job)
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
