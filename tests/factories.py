"""Factories: unsent jobs, and claims as an exchange returns them, for tests without Redis."""

from typing import Any

from django_delayq.job.attempts import NO_ATTEMPTS
from django_delayq.job.job import Claim, Job
from django_delayq.job.unsent import Debounce, Throttle, UnsentJob, encode_new


def claim_for(job: Job | None, **facts: Any) -> Claim:
    """Return the claim of a job, or of none if a body cannot be read; `facts` are fields of `Claim`."""
    lease = job.member + bytes(16) if job else bytes(30)
    usual = {"lease": lease, "queue": job.queue if job else "mail", "rank": 1, "due_us": 1, "attempts": NO_ATTEMPTS}
    return Claim(job=job, **{**usual, "shard": 0, "claimed_us": 1, "sent_at": 0.0, "received_at": 0.0, **facts})


def numbered(number: int) -> Claim:
    """Return a claim whose lease differs from others."""
    return claim_for(None, lease=number.to_bytes(30))


def unsent(
    job: Job,
    *,
    max_payload: int,
    unique: str | Debounce | Throttle = "keep",
    until_start: bool = False,
    in_fair_queue: bool = False,
) -> UnsentJob:
    """Return a job to send at once, without a delay."""
    job, body = encode_new(job, max_payload=max_payload, in_fair_queue=in_fair_queue)
    return UnsentJob(job=job, body=body, unique=unique, until_start=until_start, on_commit=False)
