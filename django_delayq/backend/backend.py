"""DelayQBackend: the backend of Django's tasks framework; translation only.

TASKS = {"default": {"BACKEND": "django_delayq.backend.DelayQBackend", "QUEUES": [...], "OPTIONS": {...}}}
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from django.utils.functional import cached_property

from django_delayq.backend.compat import BaseTaskBackend, InvalidTask, Task, TaskResultDoesNotExist
from django_delayq.backend.django_task import DjangoTask, register_django_task
from django_delayq.backend.task_result import alias_of, failed_result, finished_result, ready_result, running_result
from django_delayq.conf.settings import backends, is_configured, read_alias, sharing_alias
from django_delayq.conf.task_backends import EXTRA_KEYS, OWN_KEYS
from django_delayq.conf.validators import MAX_NAME
from django_delayq.exceptions import DelayQError, UnknownTask
from django_delayq.job.attempts import NO_ATTEMPTS
from django_delayq.job.ids import from_text
from django_delayq.job.job import DJANGO_TASK, State
from django_delayq.spelling import did_you_mean
from django_delayq.store.queries.lookup import Found
from django_delayq.store.store import get_store
from django_delayq.task import outbox, registry
from django_delayq.task.options import TaskOptions

_NO_RESULT = "There is no result {!r:.100}: it was never enqueued with this backend, or is kept no longer."


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayQTask(Task):  # type: ignore[type-arg]
    """A task of Django's with one field of ours: `delayq={"retry": …, "timeout": …, "key": …}`."""

    # Not compared: a job keeps what came of it, so the task of a result that is looked up cannot tell it.
    delayq: Mapping[str, Any] | None = field(default=None, compare=False)

    def using(self, *, delayq: Mapping[str, Any] | None = None, **changes: Any) -> Any:
        """Return a copy with other options; what `delayq` leaves out stays."""
        # Not super(): a class with slots is made twice, and this is the first one's method.
        changed: Any = Task.using(self, **changes)
        return changed if delayq is None else replace(changed, delayq={**(self.delayq or {}), **delayq})

    def __reduce__(self) -> Any:
        """Pickle as the path and the fields, as Django does from 6.1 on; before, only loaded modules are looked in."""
        if hasattr(Task, "_reconstruct"):
            return Task.__reduce__(self)
        others = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "func"}
        return _remade, (type(self), self.module_path, others)


class DelayQBackend(BaseTaskBackend):
    """Run Django's tasks on this engine."""

    #: How the settings know a subclass.
    of_django_delayq = True
    task_class = DelayQTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def validate_task(self, task: Any) -> None:
        """Raise InvalidTask for what could not run here, else make the task known to this process's worker."""
        later = isinstance(task.run_after, timedelta)
        told = {each.name: getattr(task, each.name) for each in fields(task)} if later else {}
        checked: Any = SimpleNamespace(**{**told, "run_after": None}) if later else task
        super().validate_task(checked)
        self._check_function(task.func)
        if task.run_after is not None and not isinstance(task.run_after, datetime | timedelta):
            raise InvalidTask(f"run_after must be a datetime or a timedelta, got {type(task.run_after).__name__}.")
        queue = task.queue_name
        if not isinstance(queue, str) or not 1 <= len(queue.encode("utf-8", "surrogatepass")) <= MAX_NAME:
            raise InvalidTask(f"queue_name must be text of 1 to {MAX_NAME} bytes, got {queue!r:.80}.")
        if (given_options := getattr(task, "delayq", None)) is not None:
            try:
                TaskOptions.read(given_options, of="delayq")
            except (DelayQError, ValueError) as error:
                raise InvalidTask(str(error)) from error
        try:
            register_django_task(task)
        except ImproperlyConfigured as error:
            raise InvalidTask(str(error)) from error

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Store a task to be run, at once or at `run_after`, and return its result. One round trip.

        Raises InvalidTask, TypeError and ValueError, or ImproperlyConfigured for OPTIONS of which `check()` tells an
        error, before anything is sent; then `StoreError`s.
        """
        self.validate_task(task)
        task = _resolved(task)
        mine: DjangoTask[..., Any] = DjangoTask.of(
            task, self._options_of(task), on_commit=self._sound_options.get("ON_COMMIT", False)
        )
        handle = mine.make_job(args, kwargs)
        job = handle.job
        outbox.accept([handle])
        if not handle.created or job is None:
            return self.get_result(handle.id)
        result = ready_result(task, job, attempts=NO_ATTEMPTS)
        object.__setattr__(result, "task", task)
        return result

    def get_result(self, result_id: Any) -> Any:
        """Return the result of an id. Raises TaskResultDoesNotExist, and `StoreError`s where that is not known.

        One or two round trips. Raises `UnknownTask` where this process does not know the function.
        """
        place, store = from_text(result_id), get_store(self.alias)
        if place is None or place[1] >= store.config.shards:
            raise TaskResultDoesNotExist(_NO_RESULT.format(result_id))
        found = store.lookup(place[1]).find(place[0])
        job = found.job
        if job is None or job.kind is not DJANGO_TASK or alias_of(job) != self.alias:
            raise TaskResultDoesNotExist(_NO_RESULT.format(result_id))
        task = registry.find(job.task)
        if not isinstance(task, DjangoTask):
            raise UnknownTask(
                f"{job.task!r:.200} is not a task that this process knows: import its module, put it into tasks.py of "
                f"an app, or name the module in DELAYQ['TASK_MODULES']"
            )
        result = _told(task.source, found)
        if result is None:
            raise TaskResultDoesNotExist(_NO_RESULT.format(result_id))
        return result

    def check(self, **_: Any) -> list[CheckMessage]:
        """Return what is wrong with OPTIONS; never connects."""
        return list(self._problems())

    def _check_function(self, func: Any) -> None:
        if func.__name__ == "<lambda>" or "." in func.__qualname__:
            raise InvalidTask(f"{func.__module__}.{func.__qualname__} is no function that a worker could find by name.")

    @cached_property
    def _sound_options(self) -> Mapping[str, Any]:
        for problem in self._problems():
            if isinstance(problem, Error):
                raise ImproperlyConfigured(f"{problem.msg} {problem.hint or ''}".rstrip())
        return self.options

    def _options_of(self, task: Any) -> TaskOptions:
        given_here = self._sound_options.get("TASKS", {}).get(task.module_path, {})
        return TaskOptions.read({**given_here, **(getattr(task, "delayq", None) or {})}, of=task.module_path)

    def _problems(self) -> Iterator[CheckMessage]:
        of, given = f"TASKS[{self.alias!r}]['OPTIONS']", cast(Any, self.options)
        if not isinstance(given, Mapping):
            yield Error(f"{of} must be a dict, got {type(given).__name__}.", id="delayq.E010")
            return
        shared = self.alias == sharing_alias()
        for key in self.options if shared and is_configured() else ():
            if key not in (*EXTRA_KEYS, *OWN_KEYS):
                hint = "Write it there, or take it out: this alias shares the store of DELAYQ."
                yield Error(f"{of} has the key {key!r:.80}, which is DELAYQ's to say.", hint=hint, id="delayq.E011")
        config, problems = read_alias(self.alias)
        others = [alias for alias in backends() if alias != self.alias and (alias == sharing_alias() or not shared)]
        for other in others if config else ():
            theirs = read_alias(other)[0]
            if theirs and config and (theirs.redis, theirs.prefix) == (config.redis, config.prefix):
                hint = "Give it a PREFIX of its own in OPTIONS, or leave PREFIX out."
                yield Error(f"{of}: the alias has the same store as {other!r}.", hint=hint, id="delayq.E015")
        for problem in problems:
            # What is wrong with DELAYQ itself is told once.
            if any(repr(key) in problem.message for key in self.options if not shared or key in OWN_KEYS):
                yield Error(problem.message, hint=problem.hint, id=problem.id)
        if not isinstance(self.options.get("ON_COMMIT", False), bool):
            yield Error(f"{of}['ON_COMMIT'] must be True or False.", id="delayq.E012")
        tasks = self.options.get("TASKS", {})
        if not isinstance(tasks, Mapping):
            yield Error(
                f"{of}['TASKS'] must be a dict of paths of tasks, got {type(tasks).__name__}.", id="delayq.E013"
            )
            return
        for path, options in tasks.items():
            try:
                TaskOptions.read(options, of=f"{of}['TASKS'][{path!r:.200}]")
            except (DelayQError, ValueError) as error:
                yield Error(f"{error}.", id="delayq.E013")
            if not isinstance(path, str) or not isinstance(registry.find(path), DjangoTask):
                yield Warning(
                    f"{of}['TASKS'] names {path!r:.200}{did_you_mean(path, registry.names())}, which is no @task that "
                    f"this process knows.",
                    hint="Write the path of the function, 'module.function', of a task in tasks.py of an app.",
                    id="delayq.W014",
                )


def _remade(kind: Any, path: str, others: dict[str, Any]) -> Any:
    return kind(func=registry.get(path).func, **others)


def _resolved(task: Any) -> Any:
    """Return the task with the moment that a timedelta means now."""
    if not isinstance(task.run_after, timedelta):
        return task
    try:
        return replace(task, run_after=timezone.now() + task.run_after)
    except OverflowError as error:
        raise InvalidTask("run_after is longer than a datetime can be; use a shorter one.") from error


def _told(source: Any, found: Found) -> Any:
    """Return the result of what was found, or None where that is no result."""
    job, attempts = found.job, found.attempts
    if job is None:
        return None
    if found.result is not None:
        return finished_result(source, job, attempts=attempts, result=found.result)
    match found.state:
        case State.SCHEDULED | State.READY:
            return ready_result(source, job, attempts=attempts)
        case State.CLAIMED:
            return running_result(source, job, attempts=attempts, worker=found.worker, started_us=found.claimed_us or 0)
        case State.DEAD:
            return failed_result(source, job, attempts=attempts, died_us=found.moment_us)
    return None
