"""Codec: a Job and the bytes stored in `bodies`.

A fixed head (format, priority, flags, queue, task) that every version can read, then JSON: [args, kwargs, options],
without what equals its default. JSON is written with ASCII escapes, so that lone surrogates and NUL come back as they
were. A signed body has the top bit of its format set and a signature behind the JSON (`seal.py`).
"""

import json
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django_delayq.exceptions import BadBody, NewerBody, PayloadTooLarge
from django_delayq.job import LARGE_BODY, MAX_PRIORITY, Flag, Job
from django_delayq.retry import RetryPolicy

FORMAT = 1
#: Containers within containers: what `payload` let through when it was enqueued has no more.
_MAX_DEPTH = 64
#: Bit of the format byte that says: a signature of so many bytes follows. Not a flag: members do not change by it.
SIGNED, SIGNATURE = 0x80, 32
#: What format 1 leaves out; it stays what it is when the default of new jobs changes.
_DEFAULT_RETRY = RetryPolicy(max_attempts=5, base=2, cap=3_600, on_error=True)
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False, allow_nan=False).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What stands in front of every body: enough to find, move and name the job."""

    priority: int
    flags: Flag
    queue: str
    task: str
    #: Length of the head in bytes.
    size: int

    def member(self, raw_id: bytes) -> bytes:
        """Return the job's member in `schedule` and `ready`."""
        return raw_id + bytes((MAX_PRIORITY - self.priority, self.flags))


def encode(job: Job, *, max_payload: int) -> tuple[Job, bytes]:
    """Return the job with its flags completed, and its body.

    Arguments are checked by `payload.check_payload` before. Raises `PayloadTooLarge` above `max_payload` bytes.
    """
    payload: list[Any] = [job.args, job.kwargs, _options(job)]
    while payload and not payload[-1]:
        payload.pop()
    text = _encode(payload).encode("ascii")
    if len(text) > max_payload:
        raise PayloadTooLarge(
            f"the arguments of {job.task} take {len(text):,} bytes, more than MAX_PAYLOAD ({max_payload:,}); "
            f"store them elsewhere and pass a reference"
        )
    queue, task = job.queue.encode("utf-8", "surrogatepass"), job.task.encode("utf-8", "surrogatepass")
    if len(text) + len(queue) + len(task) > LARGE_BODY - 8:
        job = replace(job, flags=job.flags | Flag.LARGE)
    front = bytes((FORMAT, MAX_PRIORITY - job.priority, job.flags, len(queue)))
    return job, b"".join((front, queue, len(task).to_bytes(2), task, text))


def decode_head(body: bytes) -> Head:
    """Read the head of a body, also of one cut short behind it. Raises `BadBody`."""
    try:
        end = 4 + body[3]
        task_end = end + 2 + int.from_bytes(body[end : end + 2])
        if len(body) < task_end or body[1] > 2 * MAX_PRIORITY:
            raise BadBody("the stored body is damaged: its head does not end")
        return Head(
            priority=MAX_PRIORITY - body[1],
            flags=Flag(body[2]),
            queue=body[4:end].decode("utf-8", "surrogatepass"),
            task=body[end + 2 : task_end].decode("utf-8", "surrogatepass"),
            size=task_end,
        )
    except (IndexError, UnicodeDecodeError) as error:
        raise BadBody("the stored body is damaged: its head cannot be read") from error


def decode(body: bytes | None, *, raw_id: bytes, shard: int) -> Job:
    """Return the job of a body. Raises `BadBody`, or `NewerBody` for a format of a later release."""
    if body is None:
        raise BadBody("the stored body is missing")
    head = decode_head(body)
    if is_newer(body):
        number = body[0] & ~SIGNED
        raise NewerBody(f"the job was stored in format {number}, this process reads up to {FORMAT}; update it")
    try:
        text = body[head.size : -SIGNATURE] if body[0] & SIGNED else body[head.size :]
        payload = json.loads(text)
        # Counted first: few payloads have so many brackets, and none that was checked when enqueued is so deep.
        if text.count(b"[") + text.count(b"{") > _MAX_DEPTH:
            _check_depth(payload, _MAX_DEPTH + 2)
        if type(payload) is not list:
            raise BadBody("the stored body is damaged: its arguments are no list")
        args, kwargs, options = _completed(payload)
        if type(args) is not list or type(kwargs) is not dict:
            raise BadBody("the stored body is damaged: its arguments are no list and object")
        retry, timeout_us, hard_timeout_us, key = (
            _read_options(options) if options else (_DEFAULT_RETRY, None, None, None)
        )
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
        retry=retry,
        timeout_us=timeout_us,
        hard_timeout_us=hard_timeout_us,
        key=key,
        flags=head.flags,
    )


def _check_depth(value: Any, left: int) -> None:
    """Raise ValueError for what is nested deeper: pickling it for a process of its own, or printing it, would fail."""
    if isinstance(value, list | dict):
        if not left:
            raise ValueError("nested too deep")
        for item in value if isinstance(value, list) else value.values():
            _check_depth(item, left - 1)


def _completed(payload: Any) -> tuple[Any, Any, Any]:
    """Return args, kwargs and options with what was left out for being empty."""
    missing: list[Any] = [[], {}, {}][len(payload) :]
    args, kwargs, options = list(payload) + missing
    return args, kwargs, options


def is_newer(body: bytes) -> bool:
    """Whether a body is of a format that a later release made."""
    return bool(body) and body[0] & ~SIGNED > FORMAT


def unsigned(body: bytes) -> bytes:
    """Return the same body without its signature, if it has one."""
    return bytes((body[0] & ~SIGNED,)) + body[1:-SIGNATURE] if body and body[0] & SIGNED else body


def with_queue(body: bytes, queue: str) -> bytes:
    """Return the same body for another queue. One that is signed goes through `Seal.rewritten`."""
    name = queue.encode("utf-8", "surrogatepass")
    return b"".join((body[:3], bytes((len(name),)), name, body[4 + body[3] :]))


def with_flags(body: bytes, flags: Flag) -> bytes:
    """Return the same body with other flags."""
    return b"".join((body[:2], bytes((flags,)), body[3:]))


def _options(job: Job) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if job.retry != _DEFAULT_RETRY:
        base, cap = (_whole_us(span) for span in (job.retry.base, job.retry.cap))
        options["r"] = [job.retry.max_attempts, base, cap, int(job.retry.on_error)]
    if job.timeout_us is not None:
        options["t"] = job.timeout_us
    if job.hard_timeout_us is not None:
        options["h"] = job.hard_timeout_us
    if job.key is not None:
        options["k"] = job.key
    return options


def _read_options(options: dict[str, Any]) -> tuple[RetryPolicy, int | None, int | None, str | None]:
    retry = _DEFAULT_RETRY
    if "r" in options:
        max_attempts, base, cap, on_error = options["r"]
        retry = RetryPolicy(
            max_attempts=max_attempts,
            base=timedelta(microseconds=base),
            cap=timedelta(microseconds=cap),
            on_error=bool(on_error),
        )
    timeout_us, hard_timeout_us, key = options.get("t"), options.get("h"), options.get("k")
    for number in (timeout_us, hard_timeout_us):
        # As a float of seconds it has to be a number, in the worker's heartbeats too.
        if number is not None and (type(number) is not int or not 0 <= number < 2**1000):
            raise ValueError("a time limit must be whole microseconds")
    if key is not None and type(key) is not str:
        raise ValueError("a key must be text")
    return retry, timeout_us, hard_timeout_us, key


def _whole_us(span: Any) -> int:
    return int(span // timedelta(microseconds=1))
