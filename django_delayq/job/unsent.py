"""Draft: a job that is not sent yet, with the time it asks for."""

from dataclasses import field, replace

from django_delayq.job.codec import encode, with_flags
from django_delayq.job.job import Flag, Job
from django_delayq.job.value import fast_dataclass


@fast_dataclass
class UnsentJob:
    """A job and its body as they will be sent."""

    job: Job
    body: bytes = field(repr=False)
    #: µs after the call; None: no delay asked for.
    delay_us: int | None = None
    #: µs since the epoch; None: no moment asked for.
    due_us: int | None = None
    #: `Clock.steady()` at the call that the delay counts from.
    called_at: float = 0.0
    #: A held key is an error instead of the holder's handle.
    reject: bool = False
    #: Wait for the commit of the transactions the caller is in.
    on_commit: bool = True
    #: Alias of the only connection to wait for; None: all that are in an atomic block.
    database: str | None = None

    @classmethod
    def of(
        cls,
        job: Job,
        *,
        max_payload: int,
        reject: bool,
        on_commit: bool,
        database: str | None,
        delay_us: int | None = None,
        due_us: int | None = None,
        called_at: float = 0.0,
    ) -> "UnsentJob":
        """Encode a job whose arguments are checked; a delay counts from `called_at`. Raises `PayloadTooLarge`."""
        flags = job.flags if job.key is None else job.flags | Flag.HAS_EXTRAS
        if delay_us is not None or due_us is not None:
            flags |= Flag.DELAYED
        if job.result_ttl_us is not None:
            flags |= Flag.KEEPS_RESULT
        flags |= job.kind.flags
        if flags is not job.flags:
            job = replace(job, flags=flags)
        job, body = encode(job, max_payload=max_payload)
        return cls(
            job=job,
            body=body,
            delay_us=delay_us,
            due_us=due_us,
            called_at=called_at,
            reject=reject,
            on_commit=on_commit,
            database=database,
        )

    def rescheduled(self, *, delay_us: int | None, due_us: int | None, called_at: float) -> "UnsentJob":
        """Return the draft for another time; the delayed flag follows."""
        delayed = delay_us is not None or due_us is not None
        flags = self.job.flags | Flag.DELAYED if delayed else self.job.flags & ~Flag.DELAYED
        job, body = self.job, self.body
        if flags != job.flags:
            job, body = replace(job, flags=flags), with_flags(body, flags)
        return replace(self, job=job, body=body, delay_us=delay_us, due_us=due_us, called_at=called_at)
