"""Exceptions: the errors that callers of the package may get, all derived from `DelayQError`.

A class docstring is the default message. Errors about a wrong argument also derive from the builtin exception that
Python programmers expect for it.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from django.core.exceptions import ImproperlyConfigured

_DOCUMENTATION = "https://django-delayq.readthedocs.io/en/stable/"
#: A full stop is added to a message that ends with a letter, a digit, or one of these.
_ENDS_WITHOUT_STOP = ("'", '"', "`", ")", "]", "}", ">")


def address_of(part: str) -> str:
    """Return the address of a part of the documentation, such as "troubleshooting#nothing-runs".

    A test finds each part in `docs/`.
    """
    page, hash_mark, heading = part.partition("#")
    return f"{_DOCUMENTATION}{page}.html{hash_mark}{heading}"


def see(part: str) -> str:
    """Return the sentence that ends an error. Nothing follows its address, so that a terminal can open it."""
    return f"See {address_of(part)}"


class DelayQError(Exception):
    """Something went wrong in django_delayq."""

    #: The part of the documentation that each message of the class ends with; "" for none.
    part = ""

    def __init__(self, message: str = "") -> None:
        # A subclass without a docstring has that of its base. Projects may give anything as the message.
        text = str(message or inspect.getdoc(type(self)) or "")
        # A message that was pickled has it already.
        if self.part and (sentence := see(self.part)) not in text:
            stop = "." if text[-1:].isalnum() or text.endswith(_ENDS_WITHOUT_STOP) else ""
            text = f"{text}{stop} {sentence}"
        super().__init__(text)


class InvalidDelay(DelayQError):
    """A delay must be a non-negative number of seconds or a timedelta."""


class DelayTypeError(InvalidDelay, TypeError):
    """A delay must be a number of seconds or a timedelta."""


class DelayValueError(InvalidDelay, ValueError):
    """A delay must be finite, not negative, and at most MAX_DELAY."""


class InvalidMoment(DelayQError, ValueError):
    """A moment must be an aware datetime; make one with django.utils.timezone.make_aware()."""


class InvalidSchedule(DelayQError, ValueError):
    """A recurring schedule is wrong: its rule, its time zone, its name or one of its options."""


class PayloadNotSerializable(DelayQError, TypeError):
    """Arguments must be JSON values: str, int, finite float, bool, None, list, dict with str keys."""

    part = "troubleshooting#an-argument-is-not-json"


class PayloadTooLarge(DelayQError, ValueError):
    """The arguments are larger or nested deeper than allowed; store them elsewhere and pass a reference."""

    part = "troubleshooting#an-argument-is-too-large"


class ManualTransaction(DelayQError, ValueError):
    """Jobs cannot wait for the commit of a database connection whose autocommit is off."""

    part = "troubleshooting#autocommit-is-off"


class UnknownTask(DelayQError, LookupError):
    """No task of that name is registered in this process."""


class UnknownSchedule(DelayQError, LookupError):
    """The task has no recurring schedule of that name."""


class UnknownQueue(DelayQError, ValueError):
    """The queue is not declared in DELAYQ['QUEUES']."""


class JobRefused(DelayQError, ValueError):
    """A job was refused, and with it all jobs of its batch."""

    def __init__(self, message: str = "", *, index: int = 0) -> None:
        super().__init__(message)
        #: Index of the refused job in its batch.
        self.index = index
        #: Handle of the refused job.
        self.refused: Any = None
        #: Number of jobs of the same call that were stored before.
        self.accepted = 0


class KeyHeld(JobRefused):
    """Another unfinished job of the task holds the key."""

    def __init__(self, message: str = "", *, holder: str = "", index: int = 0) -> None:
        super().__init__(message, index=index)
        #: Id of the job that holds the key.
        self.holder = holder


class TenantFull(JobRefused):
    """With the jobs of this call, more jobs of the tenant would wait in the queue than its max_waiting allows."""

    def __init__(self, message: str = "", *, waiting: int = 0, most: int = 0, indexes: Sequence[int] = (0,)) -> None:
        super().__init__(message, index=indexes[0])
        #: Number of jobs of the tenant that wait in the queue, without those of the call.
        self.waiting = waiting
        #: Most jobs of a tenant that may wait in the queue.
        self.most = most
        #: Indexes in their batch of all jobs of the tenant that were refused.
        self.indexes = indexes
        #: Handles of these jobs.
        self.all_refused: Sequence[Any] = ()
        #: The errors of the other full tenants of the batch.
        self.others: Sequence[TenantFull] = ()


class BadBody(DelayQError):
    """The stored body of a job cannot be read."""


class BadSignature(BadBody):
    """The stored body of a job has no valid signature of this project for this job."""


class UnknownEncryptionKey(BadBody):
    """The stored body of a job is encrypted with a key that this process does not have; another may have it."""


class NewerBody(BadBody):
    """The job was stored by a newer version of django_delayq."""


class StoreError(DelayQError):
    """A command in Redis failed."""

    #: Whether the jobs of the failed call may be stored nevertheless, by this call or by an earlier try.
    maybe_accepted = False
    #: Whether the same call can succeed later without a change of settings or code.
    retryable = False
    #: Whether it may be a matter of milliseconds: the job's shard is on its way to another server.
    brief = False

    def __init__(self, message: str = "", *, maybe_accepted: bool | None = None) -> None:
        super().__init__(message)
        if maybe_accepted is not None:
            self.maybe_accepted = maybe_accepted
        #: Handles of the jobs that were not stored, or perhaps not; set by the enqueueing code.
        self.unsent: Sequence[Any] = ()
        #: Number of jobs of the same call that were stored before.
        self.accepted = 0
        self._resend: Callable[[], object] | None = None

    def offer_resend(self, unsent: Sequence[Any], resend: Callable[[], object]) -> None:
        """Set the jobs that were not sent, and the function that sends them again with the same ids."""
        self.unsent, self._resend = unsent, resend

    def resend(self) -> None:
        """Send the unsent jobs again with the same ids.

        A job that did arrive is not stored twice while it waits, runs or is dead. A job that has ended by then runs
        again. Raises a `StoreError` if Redis still fails. Does nothing if no job is unsent.
        """
        if self._resend is not None:
            self._resend()


class StoreUnavailable(StoreError):
    """Redis could not be reached, or did not answer in time."""

    retryable = True

    def __init__(
        self, message: str = "", *, maybe_accepted: bool | None = None, brief: bool = False, slow: bool = False
    ) -> None:
        super().__init__(message, maybe_accepted=maybe_accepted)
        self.brief = brief
        #: Whether the time of the call was over, so that Redis may be alive.
        self.slow = slow


class StoreRejected(StoreError):
    """Redis refuses writes now; nothing was stored."""

    retryable = True

    def __init__(self, message: str = "", *, code: str = "") -> None:
        super().__init__(message, maybe_accepted=False)
        #: Redis's error code: OOM, READONLY, MISCONF, NOREPLICAS …
        self.code = code


class NotReplicated(StoreError):
    """Redis carried out the call, but too few replicas confirmed it in time: a failover may undo it."""

    maybe_accepted = True
    retryable = True

    def __init__(self, message: str = "", *, replicas: int = 0) -> None:
        super().__init__(message)
        #: Number of replicas that confirmed it.
        self.replicas = replicas


class StoreAuthError(StoreError):
    """Redis refused the user, the password, or a command the user may not run."""


class ScriptFault(StoreError):
    """A script failed in Redis; this is a bug, or the keys were edited manually."""


class StaleExchange(StoreError):
    """A later exchange of this worker was applied already."""


class OtherLayout(StoreError):
    """A shard knows another layout than this process, and did nothing. The caller learns it and asks again."""

    retryable = True

    def __init__(self, message: str = "", *, stored: str = "") -> None:
        super().__init__(message, maybe_accepted=False)
        #: The text of the layout that the shard knows; "" for none.
        self.stored = stored


class ShardsChanged(StoreError, ImproperlyConfigured):
    """DELAYQ['SHARDS'] changed, and unique keys of stored jobs belong to other shards now."""


class NoResult(DelayQError, LookupError):
    """The job has no result: it did not succeed, it keeps no result, or the result has expired."""


class WaitTimeout(DelayQError, TimeoutError):
    """The job did not end in time."""


class InvalidProgress(DelayQError, ValueError):
    """A progress must be a number from 0 to 1, with a short text."""


class JobCancelled(DelayQError):
    """The job was cancelled before it ran, or stopped while it ran."""


class JobExpired(NoResult):
    """The job expired before it could begin."""


class UnknownLimit(DelayQError, ValueError):
    """The limit is not declared in DELAYQ["LIMITS"]."""


class LimitClosed(DelayQError):
    """The limit stayed closed for the whole time that `block` allows."""


class JobDropped(NoResult):
    """A limit, or its recurring schedule, kept the job from beginning, and it does not wait."""


class JobCrashed(DelayQError):
    """The process of the task died, or lost its lease, before the task ended."""


class JobFailed(DelayQError):
    """A job of Django's @task failed; the message is its traceback."""


class TaskTimeout(DelayQError):
    """The task ran longer than its timeout."""


class TransactionLeftOpen(DelayQError):
    """The task ended inside a database transaction, which was rolled back."""

    def __init__(self, message: str = "", *, aliases: Sequence[str] = ()) -> None:
        names = ", ".join(map(repr, aliases))
        cure = "end it in the task: `with transaction.atomic():`, or commit() after set_autocommit(False)"
        super().__init__(
            message
            or (
                f"The task ended inside a transaction on database {names}, which was rolled "
                f"back or has not run its commit hooks; {cure}"
                if names
                else ""
            )
        )
        #: Aliases in settings.DATABASES.
        self.aliases = tuple(aliases)


class RetryLater(DelayQError):
    """Raise this in a task to run it again after a delay (seconds or timedelta); the attempt counts.

    Without a delay, the retry policy decides. `max_attempts` is never exceeded. Raised from an exception, or while one
    is handled, it shows that exception as the error of the attempt.
    """

    def __init__(self, delay: Any = None, reason: str = "") -> None:
        super().__init__(reason or "the task requested to run again later")
        self.delay = delay


class Snooze(DelayQError):
    """Raise this in a task to put the job off without counting an attempt: `raise Snooze(minutes=5)`.

    It takes seconds, a timedelta, its keywords, or `until=` an aware datetime. The shortest delay is 100 ms. Id, key
    and options stay.
    """

    def __init__(self, delay: Any = None, reason: str = "", *, until: Any = None, **units: float) -> None:
        """Raises TypeError unless exactly one of delay, until and the keywords of a timedelta is given."""
        if (delay is not None) + (until is not None) + bool(units) != 1:
            raise TypeError("Snooze() takes seconds, a timedelta, keywords such as minutes=5, or until=; give one")
        super().__init__(reason or "the task put the job off")
        #: Checked when the worker settles the attempt.
        self.delay, self.until, self.units = delay, until, units


class DeadLetterNow(DelayQError):
    """Raise this in a task to give up at once: the job becomes a dead letter with this reason.

    Without a reason, it shows the exception that it was raised from, or while handling, as the error of the job.
    """

    def __init__(self, reason: str = "the task gave up") -> None:
        super().__init__(reason)
