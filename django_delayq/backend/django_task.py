"""DjangoTask: a task made by Django's own `@task`, with the methods of `Task`.

Its jobs follow Django's contract: arguments are normalised and not checked against the signature, and results are kept.
After wrong arguments or an unknown function there is no further attempt, nor after an exception, unless the task's own
retry policy allows one.
"""

import multiprocessing
import sys
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from inspect import Signature
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.utils.timezone import is_naive, make_aware

from django_delayq.backend.compat import (
    TaskContext,
    normalize_json,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from django_delayq.backend.task_options import NO_OPTIONS, TaskOptions
from django_delayq.backend.task_result import alias_of, failed_result, finished_result, ready_result, running_result
from django_delayq.clock import LATEST_US, duration_us, moment_us
from django_delayq.conf.config import Config
from django_delayq.conf.settings import MAX_PAYLOAD, get_config, sharing_alias
from django_delayq.exceptions import JobFailed
from django_delayq.job.attempts import NO_ATTEMPTS, AttemptHistory
from django_delayq.job.body.codec import check_depth
from django_delayq.job.job import MAX_DEPTH, Claim, Job
from django_delayq.job.result import Result, serialize_result
from django_delayq.processes.service import process_name
from django_delayq.signals import send
from django_delayq.task import registry
from django_delayq.task.handle import JobHandle
from django_delayq.task.options.argument_function import check_argument_function
from django_delayq.task.options.expiry import expiry_times
from django_delayq.task.options.limits import NO_LIMITS as NO_TASK_LIMITS
from django_delayq.task.task import Task

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class DjangoTask(Task[P, R]):
    """A task made by Django's `@task`, with the options of its jobs."""

    #: Django's own object.
    source: Any
    #: Its `run_after` in µs since the epoch; None: at once, or a timedelta that counts from the enqueue.
    run_after_us: int | None = None
    #: Alias in TASKS whose store gets its jobs; None: the store of DELAYQ.
    alias: str | None = None

    @classmethod
    def of(cls, source: Any, options: TaskOptions = NO_OPTIONS, *, on_commit: bool = False) -> "DjangoTask[P, R]":
        """Return the task of Django's object, which its backend must have validated.

        Raises TypeError and ValueError for a key function, or arguments of a schedule, that do not fit the task.
        """
        timeout, hard_timeout = options.timeout, options.hard_timeout
        run_after_us = _moment_us(source.run_after)
        task = cls(
            source=source,
            func=source.func,
            name=source.module_path,
            queue=source.queue_name,
            # Django accepts 3.0, True and Decimal(3) as whole numbers.
            priority=int(source.priority),
            run_after_us=run_after_us,
            due_us=None if run_after_us is None else min(run_after_us, LATEST_US),
            alias=None if source.backend == sharing_alias() else source.backend,
            retry=options.retry,
            key=None if callable(options.key) else options.key,
            key_of=options.key if callable(options.key) else None,
            unique=options.unique,
            until=options.until,
            tenant=None if callable(options.tenant) else options.tenant,
            tenant_of=options.tenant if callable(options.tenant) else None,
            expires=None if options.expires is None else expiry_times(options.expires),
            on_expiry=options.on_expiry,
            limits=NO_TASK_LIMITS.changed(options.limit, options.cost, options.on_limit),
            recurring=options.schedules,
            on_commit=on_commit,
            # 0: results are kept for RESULT_TTL.
            result_ttl_us=0,
            timeout_us=None if timeout is None else duration_us(timeout, name="timeout"),
            hard_timeout_us=None if hard_timeout is None else duration_us(hard_timeout, name="hard_timeout"),
        )
        for option, func in (("key", task.key_of), ("tenant", task.tenant_of)):
            if func is not None:
                check_argument_function(func, task.signature, name=f"{task.name}[{option!r}]")
        task.limits.check_functions(task.signature)
        task.check_recurring()
        return task

    def make_job(self, args: Any, kwargs: Any) -> JobHandle:
        """Make a job without sending it. Unlike `job()`, it allows keyword arguments of any name.

        Raises TypeError and ValueError if the arguments are not JSON, and `PayloadTooLarge`.
        """
        return self._make(args, kwargs)

    @property
    def signature(self) -> Signature:
        """The function's signature without the context, which is not among a job's arguments."""
        signature = super().signature
        if not self.source.takes_context:
            return signature
        _context, *others = signature.parameters.values()
        return signature.replace(parameters=others)

    def check_fit(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Raise TypeError if the function does not take these arguments."""
        self.signature.bind(*args, **kwargs)

    def as_configured(self) -> "DjangoTask[P, R]":
        """Return the task with the options of its alias; unchanged, so maybe without `retry`, if those are invalid."""
        try:
            backend: Any = task_backends[self.source.backend]
            task: DjangoTask[P, R] = DjangoTask.of(self.source, backend.options_of(self.source))
            retry = get_config(self.alias or sharing_alias()).tasks.retry
        except (ImproperlyConfigured, TypeError, ValueError):
            return self
        return task if task.retry is not None else replace(task, retry=retry)

    def run_options(self, job: Job) -> TaskOptions:
        """Return the options of the task in OPTIONS of the job's alias, as they are now in this process."""
        try:
            backend: Any = task_backends[alias_of(job) or ""]
        except ImproperlyConfigured:
            return NO_OPTIONS
        found: TaskOptions = backend.options_of(self.source)
        return found

    def serialize_result(self, value: Any) -> str:
        """Return a run's return value as JSON. Raises TypeError and ValueError if it is not JSON, `PayloadTooLarge`."""
        value = normalize_json(value)
        check_depth(value)
        return serialize_result(value, of=self.name, max_payload=MAX_PAYLOAD, strict=False)

    def on_enqueued(self, job: Job) -> None:
        """Send `task_enqueued` for an accepted job."""
        send(task_enqueued, _sender(job), task_result=ready_result(self.source, job, attempts=NO_ATTEMPTS))

    def before_run(self, claim: Claim, job: Job) -> Job:
        """Send `task_started`; return the job with copies of its arguments, and the context if it takes one."""
        result = running_result(
            self.source, job, attempts=claim.attempts, worker=_worker_name(), started_us=claim.claimed_us
        )
        send(task_started, _sender(job), task_result=result)
        context: list[Any] = [TaskContext(task_result=result)] if self.source.takes_context else []
        # Copies, because the function may change its arguments, and `on_finished()` needs the original ones.
        return replace(job, args=[*context, *result.args], kwargs=result.kwargs)

    def on_finished(
        self, job: Job, *, attempts: AttemptHistory, stored: bytes | None, error: BaseException | None
    ) -> None:
        """Send `task_finished`; `stored` is the stored result, or None for a dead letter."""
        if stored is None:
            failed = failed_result(self.source, job, attempts=attempts)
            error = error or JobFailed(attempts.last_error)
            try:
                raise error
            except type(error):
                # In this handler, because Django's receiver logs the exception that is being handled. Our own record
                # has the same one, so a tracker of errors drops the second event.
                send(task_finished, _sender(job), task_result=failed)
            finally:
                # This frame is in its traceback now: a circle would keep the variables of the task in memory.
                del error
        elif result := Result.unpack(stored):
            finished = finished_result(self.source, job, attempts=attempts, result=result)
            send(task_finished, _sender(job), task_result=finished)

    def _draft(self, args: Any, kwargs: Any) -> tuple[Config, Job, float]:
        args, kwargs = normalize_json(args), normalize_json(kwargs or {})
        check_depth([args, kwargs], left=MAX_DEPTH + 2)
        return self._new(
            get_config(self.alias or sharing_alias()),
            queue=self.queue,
            args=args,
            kwargs=kwargs,
            django=True,
            run_after_us=self.run_after_us,
            backend=self.alias,
        )


def register_django_task(source: Any) -> None:
    """Register a task made by Django's `@task`; a new function replaces the one registered under its name."""
    known = registry.registered(source.module_path)
    if known is None or known.func is not source.func:
        # `run_after` belongs to one enqueue, not to the registered function.
        registry.register(replace(DjangoTask.of(source), run_after_us=None, due_us=None))


def _find_loaded(name: str) -> Any | None:
    """Find a task by its path in an imported module: a task that names another backend is not registered here."""
    module, _, attribute = name.rpartition(".")
    loaded: Any = sys.modules.get(module)
    # Not getattr(): a module's `__getattr__` may import, and a name stored in Redis must not cause an import.
    found: Any = vars(loaded).get(attribute) if issubclass(type(loaded), ModuleType) else None
    # On the class first: reading an attribute of a lazy object may run any code, or raise.
    is_task = all(hasattr(type(found), each) for each in ("module_path", "takes_context"))
    return DjangoTask.of(found) if is_task and found.module_path == name else None


def _sender(job: Job) -> Any:
    """Return the class of the job's backend, or None if TASKS no longer has its alias."""
    try:
        return type(task_backends[alias_of(job) or ""])
    except ImproperlyConfigured:
        return None


def _worker_name() -> str:
    """Return the name of the worker's process; a child process returns that of its parent."""
    process, parent = multiprocessing.current_process(), multiprocessing.parent_process()
    return process_name(parent.pid if parent and process.name == "delayq-child" else None)


def _moment_us(moment: datetime | timedelta | None) -> int | None:
    # The enqueue replaces a timedelta by a datetime before; one that arrives here belongs to no enqueue.
    if moment is None or isinstance(moment, timedelta):
        return None
    return moment_us(make_aware(moment) if is_naive(moment) else moment, name="run_after")


registry.finders.append(_find_loaded)
