"""Definition: a recurring schedule and its job, as `schedules` stores them.

It is signed and encrypted as jobs are: dispatchers make jobs of it, and sign these.
"""

import sys
from dataclasses import dataclass, field
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
#: Four zero bytes, length of the schedule, cost of its jobs, and whether a limit drops them. No encrypted text begins
#: with a zero. With four of them, no signed body of a job can be read as a definition, and no definition as a body.
_HEAD, _START = Struct(">IHH?"), 0
#: Longest text whose definition is cached, in bytes.
_LONGEST_CACHED = 4_096


@dataclass(frozen=True, slots=True)
class Definition:
    """A schedule, and what each of its jobs is but for its id, its time and its occurrence."""

    schedule: Schedule
    job: Job
    #: How much a job counts under each of its limits, and whether it is dropped if it may not begin, as in `UnsentJob`.
    cost: int = 1
    drops: bool = False
    #: The body of the job, if it is made already.
    body: bytes = field(default=b"", compare=False, repr=False)

    @property
    def id(self) -> bytes:
        """The 8 bytes by which Redis knows the schedule."""
        return schedule_id(self.job.task, self.schedule.name)

    def encode(self) -> bytes:
        """Return the bytes of the definition: lengths and options, the schedule, a body."""
        schedule = self.schedule.pack()
        # A body does not have the id of its job. The size of the arguments was checked when the job was made.
        body = self.body or encode_new(self.job, max_payload=sys.maxsize)[1]
        return _HEAD.pack(_START, len(schedule), self.cost, self.drops) + schedule + body

    def pack(self, *, signer: BodySigner, cipher: Cipher) -> bytes:
        """Return the stored form: a byte for the format, and those bytes, encrypted and signed as the settings say.

        Equal definitions have equal forms, so that a script finds out whether one has changed.
        """
        id = self.id
        text = cipher.seal(id, _PURPOSE, self.encode(), repeatable=True)
        return signer.sign(id, bytes((FORMAT,)) + text)

    @classmethod
    def unpack(cls, stored: bytes, *, id: bytes, shard: int, signer: BodySigner, cipher: Cipher) -> Self:
        """Read the stored form. Raises `InvalidSchedule` if this process cannot read it, or must not trust it."""
        try:
            signer.verify(id, stored)
            text = unsigned(stored)
            if text[:1] != bytes((FORMAT,)):
                raise InvalidSchedule("a later release stored this schedule")
            text = cipher.open(id, _PURPOSE, text[1:])
            read = _read if len(text) <= _LONGEST_CACHED else _read.__wrapped__
            return cls(*read(text, shard))
        except (BadBody, BadSignature) as error:
            raise InvalidSchedule(f"this process cannot read the schedule: {error}") from error


# A schedule of a few seconds is read again and again.
@lru_cache(maxsize=1_024)
def _read(text: bytes, shard: int) -> tuple[Schedule, Job, int, bool]:
    if len(text) < _HEAD.size:
        raise BadBody("its definition is cut")
    zero, length, cost, drops = _HEAD.unpack_from(text)
    if zero != _START:
        raise BadBody("it is no definition of a schedule")
    start = _HEAD.size + length
    return Schedule.unpack(text[_HEAD.size : start]), decode(text[start:], raw_id=b"", shard=shard), cost, drops
