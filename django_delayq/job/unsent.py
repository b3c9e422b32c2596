"""Unsent job: a job that is not sent yet, with its body and its requested time."""

from dataclasses import dataclass, field, replace
from datetime import timedelta

from django_delayq.clock import LATEST_US, duration_us
from django_delayq.exceptions import DelayValueError
from django_delayq.job.body.codec import encode, with_flags
from django_delayq.job.job import DJANGO_TASK, Flag, Job
from django_delayq.job.value import fast_dataclass, with_changes

_HAS_EXTRAS, _DELAYED, _LIMITED = Flag.HAS_EXTRAS.value, Flag.DELAYED.value, Flag.LIMITED.value
#: By number: to make one takes 0.9 µs.
_FLAGS = tuple(map(Flag, range(2 * max(Flag))))
_KEEPS_RESULT, _EXPIRES, _DJANGO = Flag.KEEPS_RESULT.value, Flag.EXPIRES.value, DJANGO_TASK.flags.value


@dataclass(frozen=True)
class Debounce:
    """`unique=Debounce(wait, max_wait)`: one job runs for a series of calls with the same key, with the last arguments.

    Each call makes the job due `wait` after that call, at the latest `max_wait` after the first call. Both are seconds
    or timedeltas. A call after a worker has claimed the job begins the next series. Raises `InvalidDelay`.
    """

    #: From each call until the job is due.
    wait: float | timedelta
    #: From the first call until it is due at the latest. None: no limit.
    max_wait: float | timedelta | None = None
    #: `wait` and `max_wait` in µs.
    wait_us: int = field(init=False, repr=False)
    max_wait_us: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        wait_us = _positive_us(self.wait, name="wait of Debounce")
        max_wait_us = LATEST_US if self.max_wait is None else duration_us(self.max_wait, name="max_wait of Debounce")
        if max_wait_us < wait_us:
            raise DelayValueError("max_wait of Debounce must not be shorter than its wait; leave it out for no limit")
        self.__dict__.update(wait_us=wait_us, max_wait_us=min(max_wait_us, LATEST_US))


@dataclass(frozen=True)
class Throttle:
    """`unique=Throttle(window)`: of the calls with the same key within a time, only the first enqueues a job.

    The window is in seconds or a timedelta, and counts from the moment at which Redis stores that job. Later calls
    store nothing and get the handle of the job, even if it has ended. Raises `InvalidDelay`.
    """

    #: From the first call until the next one that enqueues.
    window: float | timedelta
    #: `window` in µs.
    window_us: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.__dict__.update(window_us=_positive_us(self.window, name="window of Throttle"))


@fast_dataclass
class UnsentJob:
    """A job and its body as they will be sent, and how."""

    job: Job
    body: bytes = field(repr=False)
    #: µs after the call; None: no delay.
    delay_us: int | None = None
    #: µs since the epoch; None: no fixed time.
    due_us: int | None = None
    #: `Clock.steady()` at the call that the delay counts from.
    called_at: float = 0.0
    #: What calls with the same key mean: "keep", "reject", "replace", `Debounce` or `Throttle`, as in `Task.using()`.
    unique: str | Debounce | Throttle = "keep"
    #: Hold the unique key only until the job begins.
    until_start: bool = False
    #: How much it counts under each of its limits that has a rate.
    cost: int = 1
    #: End as dropped if a limit keeps it from beginning; otherwise it waits.
    drops: bool = False
    #: Wait for the commit of the caller's transactions.
    on_commit: bool = True
    #: Alias of the only database connection to wait for; None: all that are in an atomic block.
    database: str | None = None

    @property
    def replaces(self) -> bool:
        """Whether it takes the place of a waiting job that holds its key."""
        return self.job.key is not None and (self.unique == "replace" or isinstance(self.unique, Debounce))

    def rescheduled(self, *, delay_us: int | None, due_us: int | None, called_at: float) -> "UnsentJob":
        """Return the job with another time; its delayed flag follows. It is not debounced, which would set the time."""
        delayed = delay_us is not None or due_us is not None
        flags = self.job.flags | Flag.DELAYED if delayed else self.job.flags & ~Flag.DELAYED
        job, body = self.job, self.body
        if flags != job.flags:
            job, body = replace(job, flags=flags), with_flags(body, flags)
        unique = "replace" if isinstance(self.unique, Debounce) else self.unique
        return replace(self, job=job, body=body, unique=unique, delay_us=delay_us, due_us=due_us, called_at=called_at)


def encode_new(job: Job, *, max_payload: int, delayed: bool = False, in_fair_queue: bool = False) -> tuple[Job, bytes]:
    """Return a new job with all its flags, and its body. Its arguments must be checked. Raises `PayloadTooLarge`."""
    # Numbers: an operation on an IntFlag takes 0.8 µs.
    flags = known = job.flags.value
    is_limited = job.limits or job.occurrence is not None
    if in_fair_queue or job.key is not None or job.tenant is not None or is_limited:
        flags |= _HAS_EXTRAS
    if is_limited:
        flags |= _LIMITED
    if delayed:
        flags |= _DELAYED
    if job.result_ttl_us is not None:
        flags |= _KEEPS_RESULT
    if job.expiry is not None:
        flags |= _EXPIRES
    if job.django:
        flags |= _DJANGO
    if flags != known:
        job = with_changes(job, flags=_FLAGS[flags])
    return encode(job, max_payload=max_payload)


def _positive_us(value: float | timedelta, *, name: str) -> int:
    """Return a duration in µs. Raises `InvalidDelay` if it is not above 0, or ends after the year 2255."""
    us = duration_us(value, name=name)
    if not 0 < us <= LATEST_US:
        raise DelayValueError(f"{name} must be more than 0 seconds, and short enough to end before the year 2255")
    return us
