"""Task: a function with the options its jobs get.

Calling the task calls the function. `using()`, `after()`, `at()` return a copy with other options; `enqueue()` makes a
job of it.
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import WRAPPER_ASSIGNMENTS, cache
from time import monotonic
from typing import Any, Generic, Literal, ParamSpec, TypeVar, Unpack, overload

from asgiref.sync import sync_to_async
from django.views.decorators.debug import sensitive_variables

from django_delayq import outbox, registry
from django_delayq.clock import Units, duration_us, timedelta_of
from django_delayq.conf import get_config
from django_delayq.config import check_name
from django_delayq.draft import Draft
from django_delayq.exceptions import DelayTypeError
from django_delayq.handle import JobHandle, get_job
from django_delayq.job import MAX_PRIORITY, MIN_PRIORITY, Job
from django_delayq.job_id import next_id, shard_of
from django_delayq.payload import check_arguments
from django_delayq.redaction import Sensitive, redact
from django_delayq.retry import RetryPolicy
from django_delayq.store.intake import key_digest
from django_delayq.store.store import get_store

P = ParamSpec("P")
R = TypeVar("R")
Unique = Literal["keep", "reject"]


@dataclass(frozen=True, kw_only=True)
class Task(Generic[P, R]):
    """A registered function and how its jobs are to be run."""

    func: Callable[P, R]
    name: str
    queue: str = "default"
    priority: int = 0
    retry: RetryPolicy | None = None
    timeout_us: int | None = None
    hard_timeout_us: int | None = None
    aliases: tuple[str, ...] = ()
    already_done: Callable[P, bool] | None = None
    sensitive: Sensitive = ()
    delay_us: int | None = None
    due_us: int | None = None
    key: str | None = None
    unique: Unique = "keep"
    on_commit: bool | None = None
    database: str | None = None

    def __post_init__(self) -> None:
        # What functools.update_wrapper does, past the frozen attributes.
        self.__dict__.update({name: getattr(self.func, name, None) for name in WRAPPER_ASSIGNMENTS})
        # A template calls whatever it names that does not forbid it, and would run the task's code.
        self.__dict__.update(__wrapped__=self.func, do_not_call_in_templates=True)
        self._check_options()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, here and now."""
        return self.func(*args, **kwargs)

    def using(
        self,
        *,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        run_after: datetime | None = None,
        queue: str | None = None,
        queue_name: str | None = None,
        priority: int | None = None,
        key: str | None = None,
        unique: Unique | None = None,
        retry: RetryPolicy | None = None,
        timeout: float | timedelta | None = None,
        hard_timeout: float | timedelta | None = None,
        on_commit: bool | None = None,
        database: str | None = None,
    ) -> "Task[P, R]":
        """Return the task with other options; None leaves one as it is.

        `delay`: seconds or timedelta from the call of enqueue. `at`, `run_after`: aware datetime. `priority`: −100 …
        100, larger first. `key`: what the job is unique by among the jobs of this task, with `unique` "keep" (the
        holder's handle comes back) or "reject" (`KeyHeld`). `timeout`, `hard_timeout`: seconds or timedelta.
        """
        changes: dict[str, Any] = {}
        if at is not None and run_after is not None:
            raise TypeError("at and run_after mean the same; give one of them")
        moment = at if at is not None else run_after
        if delay is not None or moment is not None:
            changes["delay_us"], changes["due_us"] = get_config().tasks.check_time(delay=delay, at=moment)
        if queue is not None and queue_name is not None:
            raise TypeError("queue and queue_name mean the same; give one of them")
        if queue is not None or queue_name is not None:
            changes["queue"] = get_config().tasks.check_queue(queue if queue is not None else queue_name)
        options = {"key": key, "unique": unique, "retry": retry, "on_commit": on_commit, "database": database}
        changes |= {name: value for name, value in options.items() if value is not None}
        if priority is not None:
            changes["priority"] = priority
        changes |= {
            f"{name}_us": duration_us(value, name=name)
            for name, value in {"timeout": timeout, "hard_timeout": hard_timeout}.items()
            if value is not None
        }
        return replace(self, **changes)

    def after(self, delay: float | timedelta | None = None, **units: Unpack[Units]) -> "Task[P, R]":
        """Return the task with a delay: seconds, a timedelta, or timedelta's keywords (`minutes=10`)."""
        if delay is None and not units:
            raise DelayTypeError("after() takes seconds, a timedelta, or keywords such as minutes=10, got None")
        if delay is not None and units:
            raise TypeError("after() takes seconds, a timedelta, or keywords such as minutes=10, not both")
        return self.using(delay=timedelta_of(units) if delay is None else delay)

    def at(self, moment: datetime) -> "Task[P, R]":
        """Return the task for a moment: an aware datetime; one in the past means now."""
        if moment is None:
            raise TypeError("at() takes an aware datetime, got None")
        return self.using(at=moment)

    def job(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle:
        """Make a job without sending it, for `enqueue_many()`.

        Raises TypeError where the arguments do not fit the function, `PayloadNotSerializable`, `PayloadTooLarge`.
        """
        return self._draft(list(args), kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle:
        """Accept one job: send it now, or after the commit of the transactions this thread is in. One round trip.

        Raises as `job()`, and `StoreError`s within ENQUEUE_TIMEOUT, `KeyHeld` for a held key with unique="reject".
        """
        handle = self._draft(list(args), kwargs)
        outbox.accept([handle])
        return handle

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle:
        """Do as `enqueue()`, from async code; in the thread whose transaction the caller is in."""
        handle = self._draft(list(args), kwargs)
        await sync_to_async(outbox.accept, thread_sensitive=True)([handle])
        return handle

    @overload
    def enqueue_many(self, arguments: Iterable[Sequence[Any]], *, on_progress: None = None) -> list[JobHandle]: ...

    @overload
    def enqueue_many(self, arguments: Iterable[Sequence[Any]], *, on_progress: Callable[[int], Any]) -> int: ...

    def enqueue_many(
        self, arguments: Iterable[Sequence[Any]], *, on_progress: Callable[[int], Any] | None = None
    ) -> list[JobHandle] | int:
        """Accept one job per tuple of positional arguments; else as the function `enqueue_many`."""
        # Not a generator: error reports find nobody above one who says what is sensitive.
        jobs = map(self._draft, map(list, arguments))
        return outbox.enqueue_many(jobs) if on_progress is None else outbox.enqueue_many(jobs, on_progress=on_progress)

    def get_job(self, job_id: str | None = None, *, key: str | None = None) -> JobHandle | None:
        """Return the handle of a job by its id, or of the job of this task that holds `key`; None for none."""
        if (job_id is None) is (key is None):
            raise TypeError("get_job() takes a job id or key=")
        if key is None:
            return get_job(job_id)
        store = get_store()
        digest = key_digest(self.name, check_name(key, name="key"))
        shard = shard_of(digest, store.config.shards)
        raw_id = store.inspection(shard).holder(digest)
        return JobHandle(raw_id=raw_id, shard=shard) if raw_id else None

    def redacted(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return stored arguments as people may see them."""
        return redact(_signature(self.func), self.sensitive, args, kwargs)

    @property
    def code(self) -> Callable[P, R]:
        """What a worker calls."""
        return self.func

    def _draft(self, args: list[Any], kwargs: dict[str, Any] | None = None) -> JobHandle:
        config, kwargs = get_config(), kwargs or {}
        _signature(self.func).bind(*args, **kwargs)
        check_arguments(args, kwargs, show_keys=not self.sensitive)
        raw_id = next_id()
        shard = shard_of(raw_id if self.key is None else key_digest(self.name, self.key), config.shards)
        job = Job(
            raw_id=raw_id,
            shard=shard,
            task=self.name,
            queue=config.tasks.check_queue(self.queue),
            priority=self.priority,
            args=args,
            kwargs=kwargs,
            retry=self.retry if self.retry is not None else config.tasks.retry,
            timeout_us=self.timeout_us,
            hard_timeout_us=self.hard_timeout_us,
            key=self.key,
        )
        draft = Draft.of(
            job,
            max_payload=config.tasks.max_payload,
            reject=self.unique == "reject",
            on_commit=config.tasks.on_commit if self.on_commit is None else self.on_commit,
            database=self.database,
        ).timed(delay_us=self.delay_us, due_us=self.due_us, called_at=monotonic())
        return JobHandle(raw_id=raw_id, shard=shard, draft=draft)

    def _check_options(self) -> None:
        """Raise for option values that could not work, naming the argument."""
        number = self.priority
        if isinstance(number, bool) or not isinstance(number, int):
            raise ValueError(f"priority must be a whole number, got {type(number).__name__}")
        if not MIN_PRIORITY <= number <= MAX_PRIORITY:
            raise ValueError(f"priority must be {MIN_PRIORITY} to {MAX_PRIORITY} (larger runs first), got {number}")
        if self.unique not in ("keep", "reject"):
            raise ValueError(f"unique must be 'keep' or 'reject', got {self.unique!r:.80}")
        if self.key is not None:
            check_name(self.key, name="key")
        if self.retry is not None and not isinstance(self.retry, RetryPolicy):
            raise ValueError(f"retry must be a RetryPolicy, got {type(self.retry).__name__}")
        for name in ("timeout", "hard_timeout"):
            if getattr(self, f"{name}_us") == 0:
                raise ValueError(f"{name} must be more than 0 seconds; leave it out for no limit")
        if self.timeout_us and self.hard_timeout_us and self.hard_timeout_us < self.timeout_us:
            raise ValueError("hard_timeout must not be shorter than timeout")
        check_name(self.queue, name="queue")


_signature = cache(inspect.signature)


@sensitive_variables("args")
def execute_later(queue: str, name: str, args: Iterable[Any] = (), delay: float | timedelta = 0) -> JobHandle:
    """Enqueue a registered task by its name; same checks and same handle as `task.enqueue()`.

    `args`: a list of positional arguments. `delay`: seconds or timedelta; 0: as soon as possible. Raises `UnknownTask`.
    """
    if isinstance(args, (str, bytes, dict)):
        raise TypeError(f"args must be a list of positional arguments, got {type(args).__name__}")
    task: Task[..., Any] = registry.get(name)
    check_name(queue, name="queue")
    if delay is None:
        raise DelayTypeError("delay must be a number of seconds or a timedelta, got None; 0 means as soon as possible")
    return task.using(queue=queue, delay=delay).enqueue(*args)
