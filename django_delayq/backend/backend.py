"""Backend: translates between Django's tasks framework and this package; it keeps no state of its own.

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
from django_delayq.backend.task_options import TaskOptions
from django_delayq.backend.task_result import alias_of, found_result, ready_result
from django_delayq.conf.settings import EXTRA_KEYS, OWN_KEYS, backends, is_configured, read_alias, sharing_alias
from django_delayq.conf.spelling import did_you_mean
from django_delayq.conf.validators import MAX_NAME
from django_delayq.exceptions import DelayQError, UnknownTask
from django_delayq.job.attempts import NO_ATTEMPTS
from django_delayq.job.ids import from_text
from django_delayq.job.job import DJANGO_TASK
from django_delayq.store.store import get_store
from django_delayq.task import outbox, registry
from django_delayq.task.options.absent_methods import AbsentMethod
from django_delayq.task.recurring.schedules import TaskSchedules

_USE_RUN_AFTER = "write task.using(run_after=…).enqueue(…), with an aware datetime or a timedelta"
_NO_RESULT = "There is no result {!r:.100}: it was never enqueued with this backend, or is kept no longer."


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayQTask(Task):  # type: ignore[type-arg]
    """Django's task with one more field: `delayq={"retry": …, "timeout": …, "key": …}`."""

    # Excluded from equality: it is not stored, so tasks rebuilt by `get_result()` lack it.
    delayq: Mapping[str, Any] | None = field(default=None, compare=False)

    # No fields: they have no annotation.
    delay = AbsentMethod("write task.enqueue(…) with the same arguments, or task.using(run_after=…).enqueue(…)")
    apply_async = AbsentMethod("write task.using(run_after=…, queue_name=…).enqueue(*args, **kwargs), as you need")
    send = AbsentMethod("write task.enqueue(…) with the same arguments")
    schedule = AbsentMethod(_USE_RUN_AFTER)
    after = AbsentMethod(_USE_RUN_AFTER)
    at = AbsentMethod(_USE_RUN_AFTER)
    delay_on_commit = AbsentMethod("write task.enqueue(…), and set OPTIONS['ON_COMMIT'] of its alias in TASKS")
    apply = AbsentMethod("write task.call(…), which calls the function here and now")
    enqueue_many = AbsentMethod("write a loop of task.enqueue(…)")

    @property
    def schedules(self) -> TaskSchedules:
        """The recurring schedules of the task, in the store of its alias; their jobs have the options that it has."""
        backend: Any = self.get_backend()
        schedules: TaskSchedules = backend.delayq_task(self).schedules
        return schedules

    def using(self, *, delayq: Mapping[str, Any] | None = None, **changes: Any) -> Any:
        """Return a copy with other options; options that `delayq` leaves out stay."""
        if not isinstance(delayq, Mapping | None):
            raise TypeError(f"delayq must be a dict such as {{'timeout': 60}}, got {type(delayq).__name__}")
        # Not super(): a dataclass with slots is created twice, and this method belongs to the first class.
        changed: Any = Task.using(self, **changes)
        return changed if delayq is None else replace(changed, delayq={**(self.delayq or {}), **delayq})

    def __reduce__(self) -> Any:
        """Pickle the path and the fields, as Django does from 6.1 on; before, unpickling uses registered tasks only."""
        if hasattr(Task, "_reconstruct"):
            return Task.__reduce__(self)
        others = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "func"}
        return _unpickle, (type(self), self.module_path, others)


class DelayQBackend(BaseTaskBackend):
    """Run Django's tasks as delayed jobs."""

    #: Marks subclasses for the settings, which cannot import this module.
    is_delayq_backend = True
    task_class = DelayQTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def validate_task(self, task: Any) -> None:
        """Register a task in this process. Raises InvalidTask for a task that could not run here."""
        checked: Any = task
        if isinstance(task.run_after, timedelta):
            # Django's own check knows no timedelta.
            values = {each.name: getattr(task, each.name) for each in fields(task)}
            checked = SimpleNamespace(**{**values, "run_after": None})
        super().validate_task(checked)
        self._check_function(task.func)
        if task.run_after is not None and not isinstance(task.run_after, datetime | timedelta):
            raise InvalidTask(f"run_after must be a datetime or a timedelta, got {type(task.run_after).__name__}.")
        queue = task.queue_name
        if not isinstance(queue, str) or not 1 <= len(queue.encode("utf-8", "surrogatepass")) <= MAX_NAME:
            raise InvalidTask(f"queue_name must be text of 1 to {MAX_NAME} bytes, got {queue!r:.80}.")
        if (given_options := getattr(task, "delayq", None)) is not None:
            try:
                DjangoTask.of(task, TaskOptions.read(given_options, of="delayq"))
            except (DelayQError, ValueError, TypeError) as error:
                raise InvalidTask(str(error)) from error
        try:
            register_django_task(task)
        except ImproperlyConfigured as error:
            raise InvalidTask(str(error)) from error

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Enqueue a job of a task, to run at once or at `run_after`; return its result. One round trip.

        Raises InvalidTask, TypeError and ValueError before anything is sent, ImproperlyConfigured if `check()` finds
        an error in OPTIONS, and `StoreError`.
        """
        self.validate_task(task)
        task = _with_datetime(task)
        handle = self.delayq_task(task).make_job(args, kwargs)
        job = handle.job
        outbox.accept([handle])
        if not handle.created or job is None:
            return self.get_result(handle.id)
        result = ready_result(task, job, attempts=NO_ATTEMPTS)
        object.__setattr__(result, "task", task)
        return result

    def get_result(self, result_id: Any) -> Any:
        """Return the result of a job by its id, whatever the job's state. One or two round trips; more if it is gone.

        Raises TaskResultDoesNotExist, `StoreError`, and `UnknownTask` if this process does not know the function.
        """
        id_and_shard, store = from_text(result_id), get_store(self.alias)
        if id_and_shard is None or not store.has_shard(id_and_shard[1]):
            raise TaskResultDoesNotExist(_NO_RESULT.format(result_id))
        raw_id, shard = id_and_shard
        found = store.find(raw_id, shard)
        job = found.job
        if job is None or job.kind is not DJANGO_TASK or alias_of(job) != self.alias:
            raise TaskResultDoesNotExist(_NO_RESULT.format(result_id))
        task = registry.find(job.task)
        if not isinstance(task, DjangoTask):
            raise UnknownTask(
                f"{job.task!r:.200} is not a task that this process knows: import its module, put it into tasks.py of "
                f"an app, or name the module in DELAYQ['TASK_MODULES']"
            )
        result = found_result(task.source, found)
        if result is None:
            raise TaskResultDoesNotExist(_NO_RESULT.format(result_id))
        return result

    def check(self, **_: Any) -> list[CheckMessage]:
        """Return the errors and warnings about OPTIONS and the options of tasks; never connects to Redis."""
        return [*self._problems(), *self._wrong_policies()]

    def _check_function(self, func: Any) -> None:
        if func.__name__ == "<lambda>" or "." in func.__qualname__:
            raise InvalidTask(f"{func.__module__}.{func.__qualname__} is no function that a worker could find by name.")

    @cached_property
    def _valid_options(self) -> Mapping[str, Any]:
        for problem in self._problems():
            if isinstance(problem, Error):
                raise ImproperlyConfigured(f"{problem.msg} {problem.hint or ''}".rstrip())
        return self.options

    def delayq_task(self, task: Any) -> DjangoTask[..., Any]:
        """Return the task with the options of its jobs. Raises ImproperlyConfigured."""
        on_commit = self._valid_options.get("ON_COMMIT", False)
        return DjangoTask.of(_with_datetime(task), self.options_of(task), on_commit=on_commit)

    def options_of(self, task: Any) -> TaskOptions:
        """Return the options that OPTIONS and the task itself give its jobs. Raises ImproperlyConfigured."""
        in_settings = self._valid_options.get("TASKS", {}).get(task.module_path, {})
        return TaskOptions.read({**in_settings, **(getattr(task, "delayq", None) or {})}, of=task.module_path)

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
            # Errors in DELAYQ itself are reported once, by the checks of DELAYQ.
            if any(repr(key) in problem.msg for key in self.options if not shared or key in OWN_KEYS):
                yield problem
        if not isinstance(self.options.get("ON_COMMIT", False), bool):
            yield Error(f"{of}['ON_COMMIT'] must be True or False.", id="delayq.E012")
        tasks = self.options.get("TASKS", {})
        if not isinstance(tasks, Mapping):
            yield Error(
                f"{of}['TASKS'] must be a dict of paths of tasks, got {type(tasks).__name__}.", id="delayq.E013"
            )
            return
        for path, options in tasks.items():
            task = registry.find(path) if isinstance(path, str) else None
            try:
                read = TaskOptions.read(options, of=f"{of}['TASKS'][{path!r:.200}]", is_final=True)
                if isinstance(task, DjangoTask):
                    DjangoTask.of(task.source, read)
            except (DelayQError, ValueError, TypeError) as error:
                yield Error(f"{error}.", id="delayq.E013")
            if not isinstance(task, DjangoTask):
                yield Warning(
                    f"{of}['TASKS'] names {path!r:.200}{did_you_mean(path, registry.names())}, which is no @task that "
                    f"this process knows.",
                    hint="Write the path of the function, 'module.function', of a task in tasks.py of an app.",
                    id="delayq.W014",
                )

    def _wrong_policies(self) -> Iterator[CheckMessage]:
        """Yield the errors in `delayq=` that the declaration of a task could not judge."""
        for task in registry.tasks():
            given = getattr(task.source, "delayq", None) if isinstance(task, DjangoTask) else None
            if given is not None and task.source.backend == self.alias:
                try:
                    TaskOptions.read(given, of=f"delayq of the task {task.name}", is_final=True)
                except ValueError as error:
                    yield Error(f"{error}.", id="delayq.E009")


def _unpickle(cls: Any, path: str, others: dict[str, Any]) -> Any:
    return cls(func=registry.get(path).func, **others)


def _with_datetime(task: Any) -> Any:
    """Return the task with a datetime in `run_after` if it has a timedelta, which counts from now."""
    if not isinstance(task.run_after, timedelta):
        return task
    try:
        return replace(task, run_after=timezone.now() + task.run_after)
    except OverflowError as error:
        raise InvalidTask("run_after is longer than a datetime can be; use a shorter one.") from error
