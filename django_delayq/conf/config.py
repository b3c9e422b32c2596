"""Config: what DELAYQ says, as one frozen value of parts; everyone receives the part they need.

Durations are integer microseconds. Values check what they are asked about; reading settings is `conf.py`'s.
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from time import time_ns
from typing import Any

from django_delayq.clock import SECOND_US, duration_us, moment_us
from django_delayq.conf.redis_settings import RedisConfig
from django_delayq.exceptions import DelayValueError, UnknownQueue
from django_delayq.job.retry import RetryPolicy

HOUR_US, DAY_US = 3_600 * SECOND_US, 86_400 * SECOND_US
#: Longest queue name or key, in bytes of UTF-8.
MAX_NAME = 200


def longest_wait_us(lease_us: int) -> int:
    """Return the longest wait of a worker and its heartbeats after an error: none may sleep off what it holds."""
    return min(5 * SECOND_US, lease_us // 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskConfig:
    """What the enqueueing side needs."""

    task_modules: tuple[str, ...] = ()
    on_commit: bool = True
    retry: RetryPolicy = RetryPolicy()
    #: Declared queue names; empty: any name.
    queues: frozenset[str] = frozenset()
    max_delay_us: int = 3_650 * DAY_US
    #: Bytes of JSON.
    max_payload: int = 256 * 1024
    #: How long a result is kept that a task stores.
    result_ttl_us: int = DAY_US

    def check_queue(self, queue: Any) -> str:
        """Return the queue's name if it is a legal one. Raises ValueError, and `UnknownQueue` for an undeclared one."""
        name = check_name(queue, name="queue")
        if self.queues and name not in self.queues:
            raise UnknownQueue(
                f"queue {name!r} is not declared in DELAYQ['QUEUES']{nearest(name, self.queues)}; "
                f"declare it or use one that is"
            )
        return name

    def check_time(self, *, delay: Any = None, at: Any = None) -> tuple[int | None, int | None]:
        """Return (delay in µs, due in µs since the epoch) of what a caller asks for, at most one of them set.

        A delay of 0 is no delay. Raises `InvalidDelay`, `InvalidMoment`; TypeError where both are given.
        """
        if delay is not None and at is not None:
            raise TypeError("give either a delay or a moment (at, run_after), not both")
        limit_us = self.max_delay_us
        if at is not None:
            due_us = moment_us(at)
            if due_us - time_ns() // 1_000 > limit_us:
                raise DelayValueError(f"at is more than MAX_DELAY ({_days(limit_us)}) ahead; use an earlier moment")
            return None, due_us
        if delay is None:
            return None, None
        delay_us = duration_us(delay)
        if delay_us > limit_us:
            raise DelayValueError(f"delay is longer than MAX_DELAY ({_days(limit_us)}); use a shorter one")
        return delay_us or None, None


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherConfig:
    """What promotion and reclaim need."""

    lease_us: int = 30 * SECOND_US
    #: Head start of due jobs over ordinary ones of their priority.
    due_first_us: int = HOUR_US
    dead_max_age_us: int = 30 * DAY_US
    dead_max_count: int = 100_000
    dead_max_bytes: int = 256 * 1024 * 1024

    @property
    def sweep_us(self) -> int:
        """Longest sleep: losing a wake-up costs this much, and recovery stays prompt for short leases."""
        return min(5 * SECOND_US, self.lease_us // 2)

    @property
    def outage_us(self) -> int:
        """Lateness of a promotion that shows that Redis was away: less than any outage that outlasts a lease of 6 s.

        More than the stand-in of a worker takes, which comes a second late.
        """
        return max(3 * SECOND_US, min(2 * self.sweep_us, self.lease_us - self.sweep_us))

    @property
    def remembered_us(self) -> int:
        """How long the name of an empty queue is kept; heartbeats, three a lease, keep those of running jobs."""
        return max(600 * SECOND_US, self.lease_us)

    @property
    def recovery_us(self) -> int:
        """How long leases are spared after an outage: a heartbeat, and the longest wait between two attempts at it."""
        return self.lease_us // 3 + longest_wait_us(self.lease_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """What a worker needs; the command line may replace parts of it."""

    concurrency: int = 8
    grace_us: int = 25 * SECOND_US
    lease_us: int = 30 * SECOND_US
    #: Send the next exchange of an idle worker behind its blocking pop.
    claim_behind_pop: bool = True
    #: Queues to serve, in this order; empty: all, best rank first.
    queues: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig:
    """What the admin's pages need. A permission is its name, or the dotted path of `f(request) -> bool`."""

    view_permission: str = "admin.view_delayq"
    manage_permission: str = "admin.manage_delayq"
    payload_permission: str = "admin.view_delayq_payload"
    #: No buttons, no actions, and nothing revealed.
    read_only: bool = False
    #: Put the pages on `django.contrib.admin.site`.
    autoregister: bool = True
    #: Make rows of the permissions above after `migrate`.
    create_permissions: bool = True
    #: What names of hidden values contain.
    redact: re.Pattern[str] = re.compile("api|token|key|secret|pass|sign|auth|cookie|session|card", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole of DELAYQ."""

    redis: RedisConfig
    prefix: str = "delayq"
    shards: int = 1
    #: Seconds a producer's call may take in all.
    enqueue_timeout: float = 5.0
    #: Sign bodies, and run none that is not signed.
    sign: bool = False
    tasks: TaskConfig = field(default_factory=TaskConfig)
    dispatcher: DispatcherConfig = field(default_factory=DispatcherConfig)
    worker: WorkerConfig = field(default_factory=WorkerConfig)
    admin: AdminConfig = field(default_factory=AdminConfig)


def check_name(value: Any, *, name: str) -> str:
    """Return a queue's name or a key if it is text of 1 to 200 bytes. Raises ValueError naming the argument."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, got {type(value).__name__}")
    size = len(value.encode("utf-8", "surrogatepass"))
    if not 1 <= size <= MAX_NAME:
        raise ValueError(f"{name} must be 1 to {MAX_NAME} bytes of text, got {size}")
    return value


def _days(us: int) -> str:
    return f"{us / DAY_US:g} days"


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ", did you mean …?" for a misspelt word, or nothing."""
    close = difflib.get_close_matches(word, [str(name) for name in known], n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
