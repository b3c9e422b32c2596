"""RetryPolicy: how often a job may run, and how long it waits in between.

It is data inside the job. So a dispatcher can judge an expired lease without the project's code, and an old job keeps
the policy with which it was enqueued.
"""

from dataclasses import dataclass
from datetime import timedelta

from django_delayq.clock import duration_us
from django_delayq.exceptions import DelayValueError

MAX_ATTEMPTS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Say how often, and after which delay, a failed attempt is repeated.

    The wait before attempt n+1 is drawn evenly from 0 … min(cap, base·2^(n−1)): "full jitter", after Marc Brooker,
    "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
    """

    #: All runs, crashes included: 1 … 1,000.
    max_attempts: int = 5
    #: Longest wait before the second attempt: seconds or timedelta, stored as timedelta.
    base: timedelta | float = timedelta(seconds=2)
    #: Longest wait before any attempt: seconds or timedelta, stored as timedelta.
    cap: timedelta | float = timedelta(hours=1)
    #: Whether a job is tried again after an exception; after a crash or lost lease it always is.
    on_error: bool = True

    def __post_init__(self) -> None:
        number = self.max_attempts
        if isinstance(number, bool) or not isinstance(number, int):
            raise ValueError(f"max_attempts must be a whole number, got {type(number).__name__}")
        if not 1 <= number <= MAX_ATTEMPTS:
            raise ValueError(f"max_attempts must be 1 to {MAX_ATTEMPTS:,}, got {number}")
        if not isinstance(self.on_error, bool):
            raise ValueError(f"on_error must be True or False, got {type(self.on_error).__name__}")
        for name in ("base", "cap"):
            us = duration_us(getattr(self, name), name=name)
            try:
                delay = timedelta(microseconds=us)
            except OverflowError as error:
                raise DelayValueError(f"{name} is longer than a timedelta can be; use a shorter one") from error
            object.__setattr__(self, name, delay)

    def delay_us(self, ended: int, jitter: float) -> int:
        """Return the wait in µs after `ended` attempts (≥ 1); `jitter` is drawn from [0, 1)."""
        base, cap = duration_us(self.base), duration_us(self.cap)
        return int(min(cap, base << min(ended - 1, 62)) * jitter)
