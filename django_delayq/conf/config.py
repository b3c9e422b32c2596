"""Config: the DELAYQ setting as one frozen value; each part is what one kind of process needs.

One field is one setting: its name, default, validator and help. How it is read, its errors and the page
docs/reference/settings.md follow from the field. Fields that end in `_us` are integer microseconds.
"""

import re
from dataclasses import MISSING, dataclass
from typing import Any

from django_delayq import runtime
from django_delayq.clock import DAY_US, HOUR_US, LONGEST_DELAY_US, SECOND_US, duration_us, estimated_us, moment_us
from django_delayq.conf import validators
from django_delayq.conf.declared_schedules import NO_RECURRING, RECURRING, DeclaredSchedules
from django_delayq.conf.limit_rules import LIMITS, NO_LIMITS, Limits
from django_delayq.conf.queue_filter import QueueFilter
from django_delayq.conf.queue_options import NO_OPTIONS, NO_QUEUES, QUEUES, QueueOptions, Queues
from django_delayq.conf.redis_settings import RedisConfig
from django_delayq.conf.spelling import did_you_mean
from django_delayq.conf.validators import check_name, dict_of, duration, duration_text, integer, setting
from django_delayq.exceptions import DelayValueError, UnknownQueue
from django_delayq.job.job import DELAYED_TASK
from django_delayq.job.retry import RetryPolicy


def longest_wait_us(lease_us: int) -> int:
    """Return the longest pause of a worker or its heartbeat after an error: no pause may outlast a lease."""
    return min(5 * SECOND_US, lease_us // 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskConfig:
    """Settings of the processes that enqueue jobs."""

    queues: Queues = setting(
        NO_QUEUES,
        QUEUES,
        'Declared queues and their options: `{"mail": {}, "reports": {"fair": True, "weights": {"acme": 3}, '
        '"max_waiting": 10_000}}`; see [Tenants](../queues/tenants.md). A job for another queue is refused. Empty: any '
        "name is legal.",
    )
    limits: Limits = setting(
        NO_LIMITS,
        LIMITS,
        'Limits and their rules: `{"stripe": {"rate": "100/s", "burst": 20, "max_running": 5}}`; see '
        "[Limits](../queues/limits.md). Workers and dispatchers store them when they start.",
    )
    recurring: DeclaredSchedules = setting(
        NO_RECURRING,
        RECURRING,
        'Recurring schedules of tasks that are not the project\'s own: `{"nightly": {"task": "shop.tasks.report", '
        '"cron": "0 3 * * *", "tz": "Europe/Berlin", "args": ["pdf"]}}`; see [Recurring jobs](../tasks/recurring.md). '
        "Dispatchers store them when they start.",
    )
    task_modules: tuple[str, ...] = setting(
        (), validators.modules, "Modules with tasks, beside the `tasks.py` of every app."
    )
    middleware: tuple[str, ...] = setting(
        (),
        validators.classes,
        "Classes around each enqueue and each run, as dotted paths, outermost first; see "
        "[Middleware](../tasks/middleware.md). Web processes and workers need the same list.",
    )
    on_commit: bool = setting(True, validators.boolean, "Send jobs when the database transaction commits.")
    retry: RetryPolicy = setting(DELAYED_TASK.retry, validators.retry, "Retry policy of tasks that have none.")
    max_delay_us: int = setting(
        LONGEST_DELAY_US,
        duration(minimum_us=SECOND_US, maximum_us=LONGEST_DELAY_US),
        "Longest delay; a longer one is refused. No due time can be later than June 2255.",
    )
    max_payload: int = setting(
        256 * 1024,
        integer(1_024, 8 * 1024 * 1024, of="bytes"),
        "Largest JSON of a job's arguments; a larger one is refused.",
    )
    result_ttl_us: int = setting(
        DAY_US,
        duration(minimum_us=SECOND_US),
        "How long results of tasks with `store_result=True` and of Django's `@task` are kept.",
    )

    def options_of(self, queue: str) -> QueueOptions:
        """Return the options of a queue; those of one that is not declared are the defaults."""
        return self.queues.get(queue, NO_OPTIONS)

    def check_queue(self, queue: Any) -> str:
        """Return the queue's name if it is legal. Raises ValueError, and `UnknownQueue` for an undeclared one."""
        name = check_name(queue, name="queue")
        if self.queues and name not in self.queues:
            raise UnknownQueue(
                f"queue {name!r} is not declared in DELAYQ['QUEUES']{did_you_mean(name, self.queues)}; "
                f"declare it or use one that is"
            )
        return name

    def check_time(self, *, delay: Any = None, at: Any = None, name: str = "at") -> tuple[int | None, int | None]:
        """Return (delay in µs, due time in µs since the epoch), at most one of them set. A delay of 0 is no delay.

        `name` is what errors call the moment.
        Raises `InvalidDelay`, `InvalidMoment`, and TypeError if both are given.
        """
        if delay is not None and at is not None:
            raise TypeError("give either a delay or a moment (at, run_after), not both")
        if at is not None:
            due_us = moment_us(at, name=name)
            if due_us - estimated_us(runtime.current().clock) > self.max_delay_us:
                raise DelayValueError(f"{name} is more than {self._longest_delay()} ahead; use an earlier moment")
            return None, due_us
        delay_us = 0 if delay is None else duration_us(delay)
        if delay_us > self.max_delay_us:
            raise DelayValueError(f"delay is longer than {self._longest_delay()}; use a shorter one")
        return delay_us or None, None

    def check_spread(self, spread: Any) -> int:
        """Return the time in µs over which jobs are spread. Raises `InvalidDelay` if it is 0, or over MAX_DELAY."""
        spread_us = duration_us(spread, name="spread")
        if not 0 < spread_us <= self.max_delay_us:
            raise DelayValueError(
                f"spread must be longer than 0 and at most {self._longest_delay()}; leave it out for no spread"
            )
        return spread_us

    def _longest_delay(self) -> str:
        return f"MAX_DELAY ({duration_text(self.max_delay_us)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseConfig:
    """Settings that workers and dispatchers share."""

    lease_us: int = setting(
        30 * SECOND_US,
        duration(minimum_us=SECOND_US, maximum_us=DAY_US),
        "Time after which the jobs of a silent worker are taken back.",
    )
    release: str = setting(
        "",
        validators.label,
        "The release of your project, such as a tag or the hash of a commit. The charts in the admin mark when a "
        "worker or dispatcher of it reported first. Empty: the version of this package.",
    )
    finished_kept: int = setting(
        10_000,
        integer(0, 10_000),
        "How many of the last jobs that ended *Finished* in the admin lists, with their times but without arguments; "
        "0: none. They take at most 200 bytes each in Redis, beside one report of each shard.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig(LeaseConfig):
    """Settings of workers."""

    concurrency: int = setting(
        8,
        integer(1, 10_000),
        "Most jobs that a worker runs at once. Short jobs run on fewer threads, while these keep the GIL busy.",
        option=True,
    )
    grace_us: int = setting(
        25 * SECOND_US, duration(maximum_us=DAY_US), "Time for running jobs to end after their worker was stopped."
    )
    unknown_task_ttl_us: int = setting(
        DAY_US,
        duration(),
        "How long a job waits, without counting attempts, for a worker that knows its task, takes its arguments and "
        "can read its body. Then it is a dead letter with that reason.",
    )
    claim_behind_pop: bool = setting(
        True,
        validators.boolean,
        "An idle worker sends its next claim behind its blocking pop, so that a job starts a round trip earlier. "
        "Switch it off if a proxy refuses commands behind a blocking one.",
    )
    run_in_runserver: bool = setting(
        False,
        validators.boolean,
        "Run a dispatcher and a worker inside the process that `runserver` reloads, so that development needs one "
        "terminal. Only with `DEBUG` and the reloader, never with `DEBUG` off.",
    )
    #: Queues to serve, in this order; empty: all, or those of the filter, best rank first. With weights, one for each
    #: queue, they are served in these shares instead. Only the command line sets the three.
    queues: tuple[str, ...] = ()
    weights: tuple[int, ...] = ()
    queue_filter: QueueFilter | None = None

    @property
    def queue_texts(self) -> tuple[str, ...]:
        """The queues to serve, for people: names, or the items of the filter; empty: all."""
        return self.queues if self.queue_filter is None else self.queue_filter.texts


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherConfig(LeaseConfig):
    """Settings of dispatchers."""

    due_first_us: int = setting(
        HOUR_US, duration(maximum_us=365 * DAY_US), "Head start of due jobs over immediate jobs of the same priority."
    )
    dead_max_age_us: int = setting(
        30 * DAY_US,
        duration(minimum_us=SECOND_US),
        "How long dead letters are kept. Beyond any of the three limits, each shard drops its oldest dead letters "
        "within seconds and logs it.",
    )
    dead_max_count: int = setting(100_000, integer(0, 100_000_000), "How many dead letters each shard keeps.")
    dead_max_bytes: int = setting(
        256 * 1024 * 1024,
        integer(0, 2**50, of="bytes"),
        "How many bytes of dead letters each shard keeps: bodies and histories. Redis takes about 420 more for each.",
    )

    @property
    def sweep_us(self) -> int:
        """Longest sleep of a dispatcher: the cost of a lost notification. Half a lease if the lease is short."""
        return min(5 * SECOND_US, self.lease_us // 2)

    @property
    def outage_us(self) -> int:
        """Lateness of a promotion that proves an outage of Redis.

        An outage that outlasts a lease of 6 s or more makes a promotion at least this late. The first promotion of a
        fallback dispatcher is only a second late.
        """
        return max(3 * SECOND_US, min(2 * self.sweep_us, self.lease_us - self.sweep_us))

    @property
    def remembered_us(self) -> int:
        """Time for which the name of an empty queue is kept; heartbeats keep the names of running jobs' queues."""
        return max(600 * SECOND_US, self.lease_us)

    @property
    def recovery_us(self) -> int:
        """Time after an outage in which no lease expires: one heartbeat and the longest pause between two attempts."""
        return self.lease_us // 3 + longest_wait_us(self.lease_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig:
    """Settings of the pages in Django's admin, inside `ADMIN`."""

    view_permission: str = setting("admin.view_delayq", validators.permission, "Who may see the pages.")
    manage_permission: str = setting(
        "admin.manage_delayq", validators.permission, "Who may retry, cancel, move, pause and so on."
    )
    payload_permission: str = setting(
        "admin.view_delayq_payload", validators.permission, "Who may see what is hidden in arguments."
    )
    read_only: bool = setting(
        False,
        validators.boolean,
        "No buttons and no actions, and nothing hidden is shown to anyone. Lists and redacted exports stay.",
    )
    redact: re.Pattern[str] = setting(
        re.compile("api|token|key|secret|pass|sign|auth|cookie|session|card", re.IGNORECASE),
        validators.pattern,
        "Names whose values are hidden: found anywhere in a name, at any depth, in upper or lower case.",
    )
    autoregister: bool = setting(True, validators.boolean, "Add the pages to `django.contrib.admin.site`.")
    create_permissions: bool = setting(True, validators.boolean, "Create the three permissions when `migrate` ends.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Settings of the connection and the store."""

    redis: RedisConfig = setting(
        MISSING,
        lambda name, value: RedisConfig.read(value, setting=name),
        "A URL (`redis://`, `rediss://`, `unix://`, `valkey://`), a `CACHES` alias of django-redis, a dict of "
        "connection parameters (`host`, `port`, `ssl_ca_certs` …, also beside `url`), or a callable that returns one "
        "of these or a `redis.Redis`, whose connection parameters are copied. A cluster is named by a few of its "
        'nodes: `"redis+cluster://host1:6379,host2:6379"` or `{"cluster": ["host1:6379", …]}`; `address_remap`, a '
        "function, turns an address `(host, port)` that a node announces into one that this process reaches. A primary "
        'can be named by Sentinels: `{"sentinels": ["host1:26379", …], "service": "mymaster"}`, with `sentinel_kwargs` '
        "for the connections to them. [Connections](../redis/connections.md) describes all forms, aliases and TLS. "
        "Redis must run with `maxmemory-policy noeviction`, its default.",
    )
    prefix: str = setting("delayq", validators.prefix, "Text in front of every key.")
    shards: int = setting(
        1,
        integer(1, 1000),
        "Number of shards that share the jobs; each shard is one cluster slot. Redis stores the number, and the stored "
        "one decides. `delayq_shards --grow` changes it while everything runs; a process with the former number "
        "follows and warns, so change the setting with the next deploy. If the setting alone changes while jobs with "
        "a key wait, or while there are recurring schedules that were set at run time, `ShardsChanged` is raised; "
        "`run_dispatcher --force-shards` accepts the new number once.",
    )
    enqueue_timeout: float = setting(
        5.0,
        duration(minimum_us=10_000, maximum_us=DAY_US, unit_us=SECOND_US),
        "Longest time for one call to Redis that enqueues, reads or changes jobs: connecting, password, sending and "
        "answer together. A script that Redis has forgotten is sent by a second call.",
    )
    route_around: bool = setting(
        False,
        validators.boolean,
        "While a server of a cluster is down, new jobs go to the shards of the others, if they have no key, limit or "
        "tenant. The call that finds out, and calls for other jobs, wait for the server for `ENQUEUE_TIMEOUT` and fail "
        "then. Jobs of the shards that are down wait until a server has these shards again.",
    )
    wait_replicas: int = setting(
        0,
        integer(0, 100),
        "Number of replicas that must have a job before it counts as accepted: enqueueing, cancelling, rescheduling "
        "and requeueing jobs and changing recurring schedules then end when so many have confirmed it. Otherwise "
        "`NotReplicated` is raised: the call was carried out, and a failover may undo it. Its `resend()` sends the "
        "same jobs again, and returns when they are confirmed. Set it to the number of all replicas of a server: with "
        "fewer, a failover may promote one that does not have an accepted job. Without it, what Redis accepted in the "
        "last milliseconds before a failover may be lost.",
    )
    wait_timeout: float = setting(
        1.0,
        duration(minimum_us=1_000, maximum_us=DAY_US, unit_us=SECOND_US),
        "Longest time for which a call waits for the replicas of `WAIT_REPLICAS`; a little less than `ENQUEUE_TIMEOUT` "
        "at most.",
    )
    sign: bool = setting(
        False,
        validators.boolean,
        "Sign jobs with `SECRET_KEY`. A worker then runs only signed jobs: a job whose body is unsigned, changed or of "
        "another id becomes a dead letter (`bad signature`). Jobs enqueued before you switch it on are refused too, "
        "so drain the queues first. To rotate the key while processes run, first add the new key to "
        "`SECRET_KEY_FALLBACKS` everywhere, then swap the two. Remove the old one when no job that it signed waits. "
        "Recurring schedules that were set at run time need it until `delayq_check --repair` has stored them again; "
        "after you switch this on, set them again. Due time, attempts and place are not covered.",
    )
    encrypt: bool = setting(
        False,
        validators.encryption,
        "Encrypt arguments, options, errors and results in Redis, with keys derived from `SECRET_KEY`. Queue, task, "
        "priority and times stay readable. Needs the extra `encrypt`, and the keys in every process that enqueues, "
        "runs, promotes or shows jobs. Jobs enqueued before you switch it on still run. See "
        "[Encryption](../redis/encryption.md), also for how to rotate the key.",
    )
    encryption_keys: tuple[str, ...] = setting(
        (),
        validators.secrets,
        "Secrets for `ENCRYPT` instead of `SECRET_KEY` and `SECRET_KEY_FALLBACKS`: the first one encrypts, each of "
        "them decrypts.",
        secret=True,
    )
    tasks: TaskConfig = TaskConfig()
    dispatcher: DispatcherConfig = DispatcherConfig()
    worker: WorkerConfig = WorkerConfig()
    admin: AdminConfig = setting(
        AdminConfig(), dict_of(AdminConfig), "The pages in Django's admin, [below](#djangos-admin)."
    )
