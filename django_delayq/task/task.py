"""Task: a function with the options of its jobs.

Calling a task calls the function; `enqueue()` sends a job. `using()`, `after()` and `at()` copy it with other options.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import WRAPPER_ASSIGNMENTS, cached_property, partial
from inspect import Signature
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, overload

from django_delayq import runtime
from django_delayq.clock import Units, timedelta_of
from django_delayq.conf.config import Config
from django_delayq.conf.exception_classes import is_resolved, resolve
from django_delayq.conf.settings import get_config
from django_delayq.exceptions import DelayTypeError
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.ids import next_id
from django_delayq.job.job import DEFAULT_QUEUE, Claim, Job, LimitUse
from django_delayq.job.result import serialize_result
from django_delayq.job.retry import RetryPolicy
from django_delayq.job.unsent import Debounce, UnsentJob, encode_new
from django_delayq.middleware.chain import get_chain
from django_delayq.middleware.enqueue_batch import EnqueueBatch
from django_delayq.store.digests import routing_of
from django_delayq.store.store import get_store
from django_delayq.task import outbox
from django_delayq.task.arguments import (
    Arguments,
    check_arguments,
    check_context,
    check_fit,
    check_payload,
    positional_and_named,
    signature,
)
from django_delayq.task.finding import get_job, holder_of
from django_delayq.task.handle import JobHandle
from django_delayq.task.options.absent_methods import AbsentMethods
from django_delayq.task.options.argument_function import ArgumentFunction, call_with_arguments
from django_delayq.task.options.expiry import Expires, ExpiryTimes, OnExpiry, make_expiry
from django_delayq.task.options.limits import NO_LIMITS, LimitOption, LimitOptions, OnLimit, read_limit
from django_delayq.task.options.pause import Pausable
from django_delayq.task.options.task_options import (
    AlreadyDone,
    RetryDelay,
    Unique,
    Until,
    changed_fields,
    check_options,
)
from django_delayq.task.options.tenant import current_tenant
from django_delayq.task.recurring.schedules import HasSchedules
from django_delayq.task.sensitive import Sensitive, redact

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Task(Pausable, HasSchedules, AbsentMethods, Generic[P, R]):
    """A registered function and the options of its jobs.

    Instances are immutable and may be shared by threads::

        @delayed_task(queue="mail")
        def send_reminder(user_id): ...

        send_reminder.after(minutes=10).enqueue(user.pk)
    """

    func: Callable[P, R]
    name: str
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    retry: RetryPolicy | None = None
    timeout_us: int | None = None
    hard_timeout_us: int | None = None
    retry_delay: RetryDelay | None = None
    aliases: tuple[str, ...] = ()
    already_done: AlreadyDone | None = None
    sensitive: Sensitive = ()
    delay_us: int | None = None
    due_us: int | None = None
    key: str | None = None
    key_of: ArgumentFunction | None = None
    tenant: str | None = None
    tenant_of: ArgumentFunction | None = None
    unique: Unique = "keep"
    until: Until = "finish"
    on_commit: bool | None = None
    database: str | None = None
    expires: ExpiryTimes | None = None
    on_expiry: OnExpiry = "drop"
    limits: LimitOptions = NO_LIMITS
    #: µs that a result is kept; 0 for RESULT_TTL, None for not at all.
    result_ttl_us: int | None = None
    #: Whether nobody knows yet if each exception that `retry` names exists. No field: each copy finds out for itself.
    has_open_rules = False

    def __post_init__(self) -> None:
        # As functools.update_wrapper does, but the attributes of this dataclass are frozen.
        self.__dict__.update({name: getattr(self.func, name, None) for name in WRAPPER_ASSIGNMENTS})
        # A template calls every callable that does not forbid it, and would run the code of the task.
        until = "start" if isinstance(self.unique, Debounce) else self.until
        self.__dict__.update(__wrapped__=self.func, do_not_call_in_templates=True, until=until)
        check_options(self)
        if self.retry is not None and self.retry.has_rules:
            self._resolve(self.retry)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function directly, without a job."""
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
        until: Until | None = None,
        tenant: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: float | timedelta | None = None,
        hard_timeout: float | timedelta | None = None,
        on_commit: bool | None = None,
        database: str | None = None,
        store_result: bool | float | timedelta | None = None,
        expires: Expires | None = None,
        on_expiry: OnExpiry | None = None,
        limit: LimitOption | None = None,
        cost: int | None = None,
        on_limit: OnLimit | None = None,
    ) -> "Task[P, R]":
        """Return a copy of the task with other options; None leaves an option as it is.

        `delay` is in seconds or a timedelta, and counts from the call of `enqueue()`. `at` and `run_after` are aware
        datetimes. `priority` is −100 to 100; a larger one runs first. `key` is the unique key of the job among the jobs
        of this task, in place of the one that the task computes. If another job holds it, `"keep"` returns that job's
        handle, `"reject"` raises `KeyHeld`, `"replace"` gives that job, if it waits, the new arguments, options and
        time, and `Debounce` does so for a series of calls. A job holds its key until it ends, or with `until="start"`
        until it begins. With `Throttle` no job holds the key: calls within a time after the first return its handle.
        `tenant` is the name of the job's tenant, 1 to 200 bytes. `timeout` and `hard_timeout` are in seconds or
        timedeltas. `store_result` keeps the return value, for RESULT_TTL (True) or for that time. `expires` is in
        seconds or a timedelta after the due time, or an aware datetime: a job that would begin later ends as expired,
        or as a dead letter with `on_expiry="dead"`. `limit` names limits of DELAYQ["LIMITS"]: a name, a tuple of a name
        and a value such as an account, or a list of these, in place of those of the task. `cost` is how much the job
        counts in a rate. A job that a limit keeps from beginning waits, or ends as dropped with `on_limit="drop"`.
        """
        options = {name: value for name, value in locals().items() if name != "self"}
        task = replace(self, **changed_fields(self.limits, options))
        if limit is not None:
            task.limits.check_functions(self.signature)
        return task

    def after(self, seconds: float | timedelta | None = None, /, **units: Unpack[Units]) -> "Task[P, R]":
        """Return a copy of the task with a delay: seconds, a timedelta, or its keywords (`minutes=10`)."""
        if seconds is None and not units:
            raise DelayTypeError("after() takes seconds, a timedelta, or keywords such as minutes=10, got None")
        if seconds is not None and units:
            raise TypeError("after() takes seconds, a timedelta, or keywords such as minutes=10, not both")
        return self.using(delay=timedelta_of(units) if seconds is None else seconds)

    def at(self, moment: datetime) -> "Task[P, R]":
        """Return a copy of the task for a moment, an aware datetime. One in the past means now."""
        if moment is None:
            raise TypeError("at() takes an aware datetime, got None")
        return self.using(at=moment)

    def job(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle:
        """Make a job without sending it, for `enqueue_many()`.

        Raises TypeError if the arguments do not fit the function, `PayloadNotSerializable`, and `PayloadTooLarge`.
        """
        return self._make(list(args), kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle:
        """Make a job and send it, in one round trip. Inside a transaction it is sent after the commit.

        Raises what `job()` raises, `StoreError` within ENQUEUE_TIMEOUT, and `KeyHeld` for a held key with
        `unique="reject"`.
        """
        handle = self._make(list(args), kwargs)
        outbox.accept([handle])
        return handle

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle:
        """Do what `enqueue()` does, from async code, in the thread whose transaction the caller is in."""
        handle = await self._amake(list(args), kwargs)
        await outbox.aaccept([handle])
        return handle

    async def aenqueue_many(self, arguments: Iterable[Arguments]) -> list[JobHandle]:
        """Do what `enqueue_many()` does, from async code."""
        handles = []
        # Not a comprehension: before Python 3.12 it has a frame, in which error reports would show the arguments.
        with EnqueueBatch() as batch:
            for each in arguments:
                handles.append(await self._amake(*positional_and_named(each), batch))  # noqa: PERF401
            return await outbox.aenqueue_many(handles)

    @overload
    def enqueue_many(self, arguments: Iterable[Arguments], *, on_progress: None = None) -> list[JobHandle]: ...

    @overload
    def enqueue_many(self, arguments: Iterable[Arguments], *, on_progress: Callable[[int], Any]) -> int: ...

    def enqueue_many(
        self, arguments: Iterable[Arguments], *, on_progress: Callable[[int], Any] | None = None
    ) -> list[JobHandle] | int:
        """Enqueue a job for each tuple of positional or dict of keyword arguments, as the function `enqueue_many()`."""
        # Not a generator: Django's error reports would not find the frame that names the sensitive variables.
        with EnqueueBatch() as batch:
            jobs = map(partial(self._make_item, batch), arguments)
            every = {} if on_progress is None else {"on_progress": on_progress}
            return outbox.enqueue_many(jobs, **every)

    def get_job(
        self,
        job_id: str | None = None,
        *,
        key: str | None = None,
        tenant: str | None = None,
        limit: tuple[str, str | int] | str | None = None,
    ) -> JobHandle | None:
        """Return the handle of a job by its id, or of the job of this task that holds `key`; None if there is none.

        A job with a tenant holds its key among the jobs of its tenant. Without `tenant` it is that of the task, or of
        the `with tenant(…)` block around the call. With SHARDS > 1 the jobs of each value of a limit hold their keys
        among themselves. Without `limit` all shards are asked if the task has limits.
        """
        if (job_id is None) is (key is None):
            raise TypeError("get_job() takes a job id or key=")
        if key is None:
            return get_job(job_id)
        if tenant is None:
            tenant = self.tenant or current_tenant.get()
        all_shards = limit is None and self.limits.limits
        limits = None if all_shards else () if limit is None else (read_limit(limit),)
        return holder_of(self.name, key, tenant, limits)

    def redact_arguments(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return stored arguments with the sensitive ones hidden."""
        return redact(self.signature, self.sensitive, args, kwargs)

    # Cached since each enqueue reads it three times.
    @cached_property
    def wait_us(self) -> int | None:
        """The time from the call to the due time, in µs; None for none."""
        return self.unique.wait_us if isinstance(self.unique, Debounce) else self.delay_us

    @property
    def signature(self) -> Signature:
        """The signature that arguments of a job must fit."""
        return signature(self.func)

    def check_fit(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Raise TypeError if the function does not accept the arguments."""
        check_fit(self.func, args, kwargs)

    @property
    def callable(self) -> Callable[P, R]:
        """The function that a worker calls."""
        return self.func

    def as_configured(self) -> "Task[P, R]":
        """Return the task with what settings add to its options, so that `retry` is the policy of its next jobs."""
        return self if self.retry is not None else replace(self, retry=get_config().tasks.retry)

    def run_options(self, job: Job) -> Any:
        """Return the object with `retry_delay` and `already_done`, which only a worker needs."""
        return self

    def serialize_result(self, value: Any) -> str:
        """Return the JSON of a return value. Raises `PayloadNotSerializable` and `PayloadTooLarge`."""
        check_payload(value, "the return value", show_keys=not self.sensitive)
        return serialize_result(value, of=self.name, max_payload=get_config().tasks.max_payload)

    def on_enqueued(self, job: Job) -> None:
        """Hook: a job was accepted."""

    def before_run(self, claim: Claim, job: Job) -> Job:
        """Hook before the run. Returns the job with the arguments to call."""
        return job

    def on_finished(
        self, job: Job, *, attempts: AttemptHistory, stored: bytes | None, error: BaseException | None
    ) -> None:
        """Hook: a job has ended; `stored` is its stored result. For a dead letter it is None, and `error` is set."""

    def _make_item(self, batch: EnqueueBatch, arguments: Arguments) -> JobHandle:
        return self._make(*positional_and_named(arguments), batch)

    def _make(self, args: list[Any], kwargs: dict[str, Any], batch: EnqueueBatch | None = None) -> JobHandle:
        """Return the handle of a new job that has passed the middlewares."""
        config, job, called_at = self._draft(args, kwargs)
        if (chain := get_chain(job.backend)) is None:
            return self._unsent(config, job, called_at)
        return chain.enqueue(job, partial(self._in_context, config, job, called_at), batch)

    async def _amake(self, args: list[Any], kwargs: dict[str, Any], batch: EnqueueBatch | None = None) -> JobHandle:
        """Do what `_make()` does, from async code."""
        config, job, called_at = self._draft(args, kwargs)
        if (chain := get_chain(job.backend)) is None:
            return self._unsent(config, job, called_at)
        return await chain.aenqueue(job, partial(self._in_context, config, job, called_at), batch)

    def _draft(self, args: list[Any], kwargs: dict[str, Any]) -> tuple[Config, Job, float]:
        """Return the settings of the job's store, the job, and the moment that its delay counts from."""
        config = get_config()
        check_fit(self.func, args, kwargs, of=self.name)
        check_arguments(args, kwargs, show_keys=not self.sensitive)
        queue = config.tasks.check_queue(self.queue)
        return self._new(config, queue=queue, args=args, kwargs=kwargs)

    def _new(
        self, config: Config, *, args: list[Any], kwargs: dict[str, Any], **facts: Any
    ) -> tuple[Config, Job, float]:
        """Return what `_draft()` does; `facts` are the fields of `Job` that are not options of the task."""
        policy = config.tasks.retry if self.retry is None else self.retry
        if self.has_open_rules:
            policy = self._resolve(policy, name=f"the task {self.name}", is_final=True)
        raw_id, key, tenant = next_id(), self.key, self.tenant
        if key is None and self.key_of is not None:
            key = self._compute("key", self.key_of, args, kwargs)
        if tenant is None and self.tenant_of is not None:
            tenant = self._compute("tenant", self.tenant_of, args, kwargs)
        tenant = current_tenant.get() if tenant is None else tenant
        limits = tuple(self._limits(config, args, kwargs)) if self.limits.limits else ()
        store, routing = get_store(facts.get("backend")), None
        # With one shard, limits of different values are in the same one.
        if (key is not None or tenant is not None or limits) and store.shard_count > 1:
            routing = routing_of(self.name, key, tenant, limits)
        job = Job(
            raw_id=raw_id,
            shard=store.shard_for(raw_id, routing),
            task=self.name,
            priority=self.priority,
            retry=policy,
            timeout_us=self.timeout_us,
            hard_timeout_us=self.hard_timeout_us,
            key=key,
            tenant=tenant,
            limits=limits,
            result_ttl_us=config.tasks.result_ttl_us if self.result_ttl_us == 0 else self.result_ttl_us,
            expiry=None if self.expires is None else make_expiry(self, self.expires, self.due_us),
            args=args,
            kwargs=kwargs,
            **facts,
        )
        if key is None and not isinstance(self.unique, str):
            unique = f"unique={type(self.unique).__name__}(…)"
            raise ValueError(f"{unique} needs a key; declare {self.name} with key=, or use using(key=…)")
        return config, job, 0.0 if self.wait_us is None else runtime.current().clock.steady()

    def _compute(
        self, name: str, func: ArgumentFunction, args: list[Any], kwargs: dict[str, Any], *, numbers: bool = False
    ) -> str | None:
        """Return what the function of an option returns for these arguments."""
        return call_with_arguments(func, self.signature, args, kwargs, task=self.name, name=name, numbers=numbers)

    def _limits(self, config: Config, args: list[Any], kwargs: dict[str, Any]) -> Iterator[LimitUse]:
        return self.limits.uses(config.tasks.limits, partial(self._compute, args=args, kwargs=kwargs, numbers=True))

    def _resolve(self, policy: RetryPolicy, **how: Any) -> RetryPolicy:
        """Replace `retry` by the policy with the own path of each class, and return it. Raises ValueError."""
        policy = resolve(policy, **how)
        # A path is open that names a module which is being imported right now, such as that of the task.
        self.__dict__.update(retry=policy, has_open_rules=not is_resolved(policy))
        return policy

    def _in_context(self, config: Config, job: Job, called_at: float, context: dict[str, Any]) -> JobHandle:
        check_context(context, of=self.name)
        return self._unsent(config, replace(job, context=context), called_at)

    def _unsent(self, config: Config, job: Job, called_at: float) -> JobHandle:
        delayed = self.wait_us is not None or self.due_us is not None
        is_fair = config.tasks.options_of(job.queue).fair
        job, body = encode_new(job, max_payload=config.tasks.max_payload, delayed=delayed, in_fair_queue=is_fair)
        draft = UnsentJob(
            job=job,
            body=body,
            unique=self.unique,
            until_start=self.until == "start",
            cost=self.limits.cost,
            drops=self.limits.drops,
            on_commit=config.tasks.on_commit if self.on_commit is None else self.on_commit,
            database=self.database,
            delay_us=self.wait_us,
            due_us=self.due_us,
            called_at=called_at,
        )
        return JobHandle(raw_id=job.raw_id, shard=job.shard, draft=draft, backend=job.backend)
