"""Task: a function with the options its jobs get.

Calling the task calls the function. `using()`, `after()`, `at()` return a copy with other options; `enqueue()` makes a
job of it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import WRAPPER_ASSIGNMENTS
from inspect import Signature
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, overload

from asgiref.sync import sync_to_async

from django_delayq.clock import Units, duration_us, timedelta_of
from django_delayq.conf.config import Config, check_name
from django_delayq.conf.settings import get_config
from django_delayq.exceptions import DelayTypeError
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.ids import next_id, shard_of
from django_delayq.job.job import DEFAULT_QUEUE, Claim, Job
from django_delayq.job.result import serialize_result
from django_delayq.job.retry import RetryPolicy
from django_delayq.job.unsent import UnsentJob
from django_delayq.store.enqueue import key_digest
from django_delayq.store.store import get_store
from django_delayq.task import outbox
from django_delayq.task.arguments import check_arguments, check_fit, check_payload, signature
from django_delayq.task.handle import JobHandle, get_job
from django_delayq.task.options import Unique, check_options, result_ttl_us
from django_delayq.task.redaction import Sensitive, redact

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Task(Generic[P, R]):
    """A registered function and how its jobs are to be run."""

    func: Callable[P, R]
    name: str
    queue: str = DEFAULT_QUEUE
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
    #: µs that a result is kept; 0: RESULT_TTL; None: none is.
    result_ttl_us: int | None = None

    def __post_init__(self) -> None:
        # What functools.update_wrapper does, past the frozen attributes.
        self.__dict__.update({name: getattr(self.func, name, None) for name in WRAPPER_ASSIGNMENTS})
        # A template calls whatever it names that does not forbid it, and would run the task's code.
        self.__dict__.update(__wrapped__=self.func, do_not_call_in_templates=True)
        check_options(self)

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
        store_result: bool | float | timedelta | None = None,
    ) -> "Task[P, R]":
        """Return the task with other options; None leaves one as it is.

        `delay`: seconds or timedelta from the call of enqueue. `at`, `run_after`: aware datetime. `priority`: −100 …
        100, larger first. `key`: what the job is unique by among the jobs of this task, with `unique` "keep" (the
        holder's handle comes back) or "reject" (`KeyHeld`). `timeout`, `hard_timeout`: seconds or timedelta.
        `store_result`: keep what the task returns, for RESULT_TTL (True) or so long.
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
        if store_result is not None:
            changes["result_ttl_us"] = result_ttl_us(store_result)
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
        raw_id = store.lookup(shard).holder(digest)
        return JobHandle(raw_id=raw_id, shard=shard) if raw_id else None

    def redact_arguments(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return stored arguments as people may see them."""
        return redact(self.signature, self.sensitive, args, kwargs)

    @property
    def signature(self) -> Signature:
        """What the arguments of a job must fit."""
        return signature(self.func)

    def check_fit(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Raise TypeError for arguments that the function does not take."""
        check_fit(self.func, args, kwargs)

    @property
    def callable(self) -> Callable[P, R]:
        """What a worker calls."""
        return self.func

    def serialize_result(self, value: Any) -> str:
        """Return JSON of what a run returned. Raises `PayloadNotSerializable`, `PayloadTooLarge`."""
        check_payload(value, "the return value", show_keys=not self.sensitive)
        return serialize_result(value, of=self.name, max_payload=get_config().tasks.max_payload)

    def on_enqueued(self, job: Job) -> None:
        """Tell that a job was accepted which Django's @task made."""

    def before_run(self, claim: Claim, job: Job) -> Job:
        """Tell that it runs; returns it as its function is to be called."""
        return job

    def on_finished(self, job: Job, *, attempts: AttemptHistory, ending: bytes | None) -> None:
        """Tell that it ended: as `results` keeps it, or None as a dead letter."""

    def _draft(self, args: list[Any], kwargs: dict[str, Any] | None = None) -> JobHandle:
        config, kwargs = get_config(), kwargs or {}
        self.check_fit(args, kwargs)
        check_arguments(args, kwargs, show_keys=not self.sensitive)
        queue = config.tasks.check_queue(self.queue)
        return self._handle(config, key=self.key, due_us=self.due_us, queue=queue, args=args, kwargs=kwargs)

    def _handle(self, config: Config, *, key: str | None, due_us: int | None, **facts: Any) -> JobHandle:
        """Return a job of checked arguments; `facts` are fields of `Job` that the task's options do not give."""
        raw_id = next_id()
        shard = shard_of(raw_id if key is None else key_digest(self.name, key), config.shards)
        job = Job(
            raw_id=raw_id,
            shard=shard,
            task=self.name,
            priority=self.priority,
            retry=self.retry if self.retry is not None else config.tasks.retry,
            timeout_us=self.timeout_us,
            hard_timeout_us=self.hard_timeout_us,
            key=key,
            result_ttl_us=config.tasks.result_ttl_us if self.result_ttl_us == 0 else self.result_ttl_us,
            **facts,
        )
        draft = UnsentJob.of(
            job,
            max_payload=config.tasks.max_payload,
            reject=self.unique == "reject",
            on_commit=config.tasks.on_commit if self.on_commit is None else self.on_commit,
            database=self.database,
            delay_us=self.delay_us,
            due_us=due_us,
        )
        return JobHandle(raw_id=raw_id, shard=shard, draft=draft, backend=job.backend)
