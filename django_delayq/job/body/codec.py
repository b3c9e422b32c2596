"""Codec: encode a Job into the body that `jobs` stores, and decode it.

A body is a head (format, priority, flags, queue, task) that every version can read, then JSON: [args, kwargs, options].
Both leave out values that equal their default. The JSON has ASCII escapes, so that lone surrogates and NUL survive. In
format 2 the JSON is encrypted. A signed body has the top bit of its format set, and a signature after the JSON. See
`security/` for both.
"""

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from django_delayq.exceptions import BadBody, NewerBody, PayloadTooLarge, UnknownEncryptionKey, see
from django_delayq.job.body.options import expiry_option, options_of, read_expiry, read_options
from django_delayq.job.job import DEFAULT_QUEUE, LARGE_BODY, MAX_DEPTH, MAX_PRIORITY, Flag, Job
from django_delayq.job.security.encryption import Cipher

FORMAT, ENCRYPTED_FORMAT = 1, 2
#: Bit of the format byte of a signed body, and bytes of a signature. Not a flag: members do not change with it.
SIGNED, SIGNATURE = 0x80, 32
#: Longest head that is cached, in bytes.
_LONGEST_CACHED = 512
_decode = json.JSONDecoder().raw_decode
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False, allow_nan=False).encode
#: For Django's @task, whose contract allows NaN and infinities.
_encode_any = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head of a body: enough to find, move and name the job."""

    priority: int
    flags: Flag
    queue: str
    task: str
    #: Length of the head in bytes.
    size: int
    #: Three of the flags, read once for each head: an operation on an IntFlag takes 0.8 µs.
    keeps_result: bool = False
    django: bool = False
    expires: bool = False

    def member(self, raw_id: bytes) -> bytes:
        """Return the job's member in `scheduled` and `ready`."""
        return raw_id + bytes((MAX_PRIORITY - self.priority, self.flags))


def encode(job: Job, *, max_payload: int) -> tuple[Job, bytes]:
    """Return the job with its LARGE flag set if its body is large, and its body.

    The arguments must be checked JSON values. Raises `PayloadTooLarge` if they take more than `max_payload` bytes.
    """
    payload: list[Any] = [job.args, job.kwargs, options_of(job)]
    while payload and not payload[-1]:
        payload.pop()
    text = (_encode_any if job.django else _encode)(payload).encode("ascii")
    if len(text) > max_payload:
        raise PayloadTooLarge(
            f"the arguments of {job.task} take {len(text):,} bytes, more than MAX_PAYLOAD ({max_payload:,}); "
            f"store them elsewhere and pass a reference"
        )
    queue, task = _queue_bytes(job.queue), job.task.encode("utf-8", "surrogatepass")
    if len(text) + len(queue) + len(task) > LARGE_BODY - 8:
        job = replace(job, flags=job.flags | Flag.LARGE)
    front = bytes((FORMAT, MAX_PRIORITY - job.priority, job.flags, len(queue)))
    return job, b"".join((front, queue, len(task).to_bytes(2), task, text))


def decode_head(body: bytes) -> Head:
    """Read the head of a body, which may be cut after it. Raises `BadBody`."""
    try:
        end = 4 + body[3]
        task_end = end + 2 + int.from_bytes(body[end : end + 2])
        if len(body) < task_end or body[1] > 2 * MAX_PRIORITY:
            raise BadBody("the stored body is damaged: its head does not end")
        read = _head if task_end <= _LONGEST_CACHED else _head.__wrapped__
        return read(body[1:task_end], end - 1)
    except (IndexError, UnicodeDecodeError) as error:
        raise BadBody("the stored body is damaged: its head cannot be read") from error


# Few different heads are in use at a time, and reading one costs 3 µs a job.
@lru_cache(maxsize=1_024)
def _head(front: bytes, end: int) -> Head:
    return Head(
        priority=MAX_PRIORITY - front[0],
        flags=Flag(front[1]),
        queue=_queue_name(front[3:end]),
        task=front[end + 2 :].decode("utf-8", "surrogatepass"),
        size=1 + len(front),
        keeps_result=bool(front[1] & 8),
        django=bool(front[1] & 16),
        expires=bool(front[1] & 32),
    )


def encrypt(body: bytes, *, raw_id: bytes, cipher: Cipher) -> bytes:
    """Return an unsigned plain body with its arguments and options encrypted; as it is if encryption is off."""
    if not cipher.on:
        return body
    start, place = _payload(body)
    return b"".join((bytes((ENCRYPTED_FORMAT,)), body[1:start], cipher.seal(raw_id, place, body[start:])))


def decrypt(body: bytes, *, raw_id: bytes, cipher: Cipher) -> bytes:
    """Return the unsigned plain body of an unsigned one whose head can be read; one that is plain, as it is.

    Raises `UnknownEncryptionKey` and `BadBody`.
    """
    if body[0] != ENCRYPTED_FORMAT:
        return body
    start, place = _payload(body)
    return b"".join((bytes((FORMAT,)), body[1:start], cipher.open(raw_id, place, body[start:])))


def _payload(body: bytes) -> tuple[int, bytes]:
    """Return where the payload begins, and what the tag covers of it."""
    end = 4 + body[3]
    start = end + 2 + int.from_bytes(body[end : end + 2])
    return start, _place(body[end + 2 : start])


def _place(task: bytes) -> bytes:
    """Return what the tag of an encrypted body covers: not queue, priority and flags, which may change."""
    return b"body " + task


def decode(body: bytes | None, *, raw_id: bytes, shard: int, cipher: Cipher | None = None) -> Job:
    """Return the job of a body.

    Raises `BadBody`, `NewerBody` if a later release stored it, or `UnknownEncryptionKey`.
    """
    if body is None:
        raise BadBody("the stored body is missing")
    head = decode_head(body)
    if is_newer(body):
        number = body[0] & ~SIGNED
        raise NewerBody(
            f"the job was stored in format {number}, this process reads up to {ENCRYPTED_FORMAT}; update it. "
            f"{see('troubleshooting#a-newer-release-stored-the-job')}"
        )
    text = body[head.size : -SIGNATURE] if body[0] & SIGNED else body[head.size :]
    if body[0] & ~SIGNED == ENCRYPTED_FORMAT:
        if cipher is None:
            raise UnknownEncryptionKey("the job is encrypted, and its reader has no keys")
        text = cipher.open(raw_id, _place(head.task.encode("utf-8", "surrogatepass")), text)
    try:
        # Not json.loads(), which detects the encoding first.
        decoded = text.decode("utf-8", "surrogatepass")
        payload, end = _decode(decoded)
        if end != len(decoded):
            raise BadBody("the stored body is damaged: its arguments do not end where the body does")
        # Brackets are counted first: few bodies have so many, and the walk costs more.
        if text.count(b"[") + text.count(b"{") > MAX_DEPTH:
            check_depth(payload, left=MAX_DEPTH + 2)
        if type(payload) is not list:
            raise BadBody("the stored body is damaged: its arguments are no list")
        payload += ([], {}, {})[len(payload) :]
        args, kwargs, options = payload
        if type(args) is not list or type(kwargs) is not dict:
            raise BadBody("the stored body is damaged: its arguments are no list and object")
        fields = read_options(options, keeps_result=head.keeps_result, django=head.django, expires=head.expires)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise BadBody("the stored body is damaged: its arguments cannot be read") from error
    return Job(
        raw_id=raw_id,
        shard=shard,
        task=head.task,
        queue=head.queue,
        priority=head.priority,
        args=args,
        kwargs=kwargs,
        flags=head.flags,
        **fields,
    )


def try_decode_head(body: bytes | None) -> Head | None:
    """Return the head of a body, or None if there is none or it cannot be read."""
    try:
        return decode_head(body or b"")
    except BadBody:
        return None


def try_decode(
    body: bytes | None, *, raw_id: bytes, shard: int, cipher: Cipher | None = None
) -> tuple[Job | None, BadBody | None]:
    """Return the job of a body and None, or None and the error that `decode` raises."""
    try:
        return decode(body, raw_id=raw_id, shard=shard, cipher=cipher), None
    except BadBody as error:
        return None, error


def check_depth(value: Any, *, left: int = MAX_DEPTH) -> None:
    """Raise `PayloadTooLarge` if a value is nested too deep to be pickled for a child process or printed."""
    if isinstance(value, list | dict):
        if not left:
            raise PayloadTooLarge(
                f"a value is nested deeper than {MAX_DEPTH} levels; send a flatter one or a reference"
            )
        for item in value if isinstance(value, list) else value.values():
            check_depth(item, left=left - 1)


def is_newer(body: bytes) -> bool:
    """Whether a later release stored a body."""
    return bool(body) and body[0] & ~SIGNED > ENCRYPTED_FORMAT


def unsigned(body: bytes) -> bytes:
    """Return a body without its signature, if it has one."""
    return bytes((body[0] & ~SIGNED,)) + body[1:-SIGNATURE] if body and body[0] & SIGNED else body


def with_queue(body: bytes, queue: str) -> bytes:
    """Return an unsigned body with another queue; a signed one goes through `BodySigner.resign`."""
    name = _queue_bytes(queue)
    return b"".join((body[:3], bytes((len(name),)), name, body[4 + body[3] :]))


def with_flags(body: bytes, flags: Flag) -> bytes:
    """Return an unsigned body with other flags."""
    return b"".join((body[:2], bytes((flags,)), body[3:]))


def with_due(body: bytes, due_us: int, *, revived: bool = False) -> bytes:
    """Return an unsigned body whose expiry follows a new due time (µs since the epoch); unchanged without an expiry.

    `revived`: a person retries a dead letter, so an expiry that ends before the due time is left out. Raises `BadBody`.
    """
    head = decode_head(body)
    if not head.expires:
        return body
    try:
        # Options that this release does not know stay.
        payload = json.loads(body[head.size :])
        options = payload[2] if len(payload) > 2 else {}
        if "e" not in options:
            return body
        expiry = read_expiry(options["e"]).from_due(due_us)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BadBody("the stored body is damaged: its expiry cannot be read") from error
    options["e"] = expiry_option(expiry)
    if revived and expiry.moment_us <= due_us:
        del options["e"]
    return body[: head.size] + _encode_any(payload).encode("ascii")


def read_queue(body: bytes) -> str:
    """Return the queue of a body whose head is known to be valid, at a tenth of the cost of `decode_head`."""
    return _queue_name(body[4 : 4 + body[3]])


def _queue_name(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogatepass") if stored else DEFAULT_QUEUE


def _queue_bytes(queue: str) -> bytes:
    # Most jobs are in the default queue, and its name would cost 16 bytes of Redis's memory for most of them.
    return b"" if queue == DEFAULT_QUEUE else queue.encode("utf-8", "surrogatepass")
