"""Definition: a recurring schedule and its job, as `schedules` stores them.

It is signed and encrypted as jobs are: dispatchers make jobs of it, and sign these.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from struct import Struct
from typing import Self

from django_delayq.exceptions import BadBody, BadSignature, InvalidSchedule
from django_delayq.job.body.codec import FORMAT, decode, unsigned
from django_delayq.job.job import Job
from django_delayq.job.security.encryption import Cipher
from django_delayq.job.security.signing import BodySigner
from django_delayq.job.unsent import encode_new
from django_delayq.recurring.schedule import Schedule
from django_delayq.store.digests import schedule_id

#: What the tag of an encrypted definition covers, beside the id.
_PURPOSE = b"schedule"
#: Length of the schedule, cost of its jobs, and whether a limit drops them.
_HEAD = Struct(">HH?")


@dataclass(frozen=True, slots=True)
class Definition:
    """A schedule, and what each of its jobs is but for its id, its time and its occurrence."""

    schedule: Schedule
    job: Job
    #: How much a job counts under each of its limits, and whether it is dropped if it may not begin, as in `UnsentJob`.
    cost: int = 1
    drops: bool = False

    @property
    def id(self) -> bytes:
        """The 8 bytes by which Redis knows the schedule."""
        return schedule_id(self.job.task, self.schedule.name)

    def encode(self, *, max_payload: int) -> bytes:
        """Return the bytes of the definition: lengths and options, the schedule, a body. Raises `PayloadTooLarge`."""
        schedule = self.schedule.pack()
        _, body = encode_new(replace(self.job, raw_id=b""), max_payload=max_payload)
        return _HEAD.pack(len(schedule), self.cost, self.drops) + schedule + body

    def pack(self, *, signer: BodySigner, cipher: Cipher, max_payload: int) -> bytes:
        """Return the stored form: a byte for the format, and those bytes, encrypted and signed as the settings say."""
        text = cipher.seal(self.id, _PURPOSE, self.encode(max_payload=max_payload))
        return signer.sign(self.id, bytes((FORMAT,)) + text)

    @classmethod
    def unpack(cls, stored: bytes, *, id: bytes, shard: int, signer: BodySigner, cipher: Cipher) -> Self:
        """Read the stored form. Raises `InvalidSchedule` if this process cannot read it, or must not trust it."""
        try:
            signer.verify(id, stored)
            text = unsigned(stored)
            if text[:1] != bytes((FORMAT,)):
                raise InvalidSchedule("a later release stored this schedule")
            return cls(*_read(cipher.open(id, _PURPOSE, text[1:]), shard))
        except (BadBody, BadSignature) as error:
            raise InvalidSchedule(f"this process cannot read the schedule: {error}") from error


# A schedule of a few seconds is read again and again.
@lru_cache(maxsize=1_024)
def _read(text: bytes, shard: int) -> tuple[Schedule, Job, int, bool]:
    if len(text) < _HEAD.size:
        raise BadBody("its definition is cut")
    length, cost, drops = _HEAD.unpack_from(text)
    start = _HEAD.size + length
    return Schedule.unpack(text[_HEAD.size : start]), decode(text[start:], raw_id=b"", shard=shard), cost, drops
