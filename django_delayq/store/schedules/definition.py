"""Definition: a recurring schedule and its job, as `schedules` stores them.

It is signed and encrypted as jobs are: dispatchers make jobs of it, and sign these.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

from django_delayq.exceptions import BadBody, BadSignature, InvalidSchedule
from django_delayq.job.body.codec import FORMAT, decode, encode, unsigned
from django_delayq.job.job import Job
from django_delayq.job.security.encryption import Cipher
from django_delayq.job.security.signing import BodySigner
from django_delayq.recurring.schedule import Schedule
from django_delayq.store.digests import schedule_id

#: What the tag of an encrypted definition covers, beside the id.
_PURPOSE = b"schedule"


@dataclass(frozen=True, slots=True)
class Definition:
    """A schedule, and what each of its jobs is but for its id, its time and its occurrence."""

    schedule: Schedule
    job: Job

    @property
    def id(self) -> bytes:
        """The 8 bytes by which Redis knows the schedule."""
        return schedule_id(self.job.task, self.schedule.name)

    def pack(self, *, signer: BodySigner, cipher: Cipher, max_payload: int) -> bytes:
        """Return the stored form: a byte of its format, the length of the schedule, the schedule, a body.

        Raises `PayloadTooLarge`.
        """
        schedule = self.schedule.pack()
        _, body = encode(replace(self.job, raw_id=b""), max_payload=max_payload)
        text = cipher.seal(self.id, _PURPOSE, len(schedule).to_bytes(2) + schedule + body)
        return signer.sign(self.id, bytes((FORMAT,)) + text)

    @classmethod
    def unpack(cls, stored: bytes, *, id: bytes, shard: int, signer: BodySigner, cipher: Cipher) -> Self:
        """Read the stored form. Raises `InvalidSchedule` if this process cannot read it, or must not trust it."""
        try:
            signer.verify(id, stored)
            text = unsigned(stored)
            if text[:1] != bytes((FORMAT,)):
                raise InvalidSchedule("a later release stored this schedule")
            schedule, job = _read(cipher.open(id, _PURPOSE, text[1:]), shard)
        except (BadBody, BadSignature) as error:
            raise InvalidSchedule(f"this process cannot read the schedule: {error}") from error
        return cls(schedule, job)


# A schedule of a few seconds is read again and again.
@lru_cache(maxsize=1_024)
def _read(text: bytes, shard: int) -> tuple[Schedule, Job]:
    start = 2 + int.from_bytes(text[:2])
    return Schedule.unpack(text[2:start]), decode(text[start:], raw_id=b"", shard=shard)
