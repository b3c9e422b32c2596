"""Codec: a Job and the bytes stored in `bodies`.

A fixed head (format, priority, flags, queue, task) that every version can read, then JSON: [args, kwargs, options],
without what equals its default. JSON is written with ASCII escapes, so that lone surrogates and NUL come back as they
were.
"""

import json
import math
import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django_delayq.exceptions import BadBody, NewerBody, PayloadNotSerializable, PayloadTooLarge
from django_delayq.job import LARGE_BODY, MAX_PRIORITY, Flag, Job
from django_delayq.retry import RetryPolicy

FORMAT = 1
#: Containers within containers that arguments may have.
MAX_DEPTH = 64
#: What format 1 leaves out; it stays what it is when the default of new jobs changes.
_DEFAULT_RETRY = RetryPolicy(max_attempts=5, base=2, cap=3_600, on_error=True)
#: Python refuses to print or read integers of more than 4,300 digits.
_MAX_INTEGER_BITS = 13_000
#: Values in the largest payload there can be: each takes two bytes.
_MAX_VALUES = 4 * 1024 * 1024
_SURROGATE_PAIR = re.compile("[\\ud800-\\udbff][\\udc00-\\udfff]")
_SCALARS = (str, int, bool, type(None))
#: What people try to send, and what to send instead.
_HINTS = {
    "tuple": "use a list",
    "set": "use a list",
    "frozenset": "use a list",
    "datetime": "send value.isoformat()",
    "date": "send value.isoformat()",
    "timedelta": "send value.total_seconds()",
    "Decimal": "send str(value)",
    "UUID": "send str(value)",
    "bytes": "send base64 text",
    "SafeString": "send value + ''",
}
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


def check_payload(value: Any, path: str, *, depth: int = 0, above: Any = None, budget: list[int] | None = None) -> None:
    """Raise `PayloadNotSerializable`, naming its path, for what JSON cannot carry exactly; `PayloadTooLarge`."""
    kind = type(value)
    # A few lists that hold one another can stand for more values than there is memory.
    budget = [_MAX_VALUES] if budget is None else budget
    budget[0] -= 1
    if budget[0] < 0:
        raise PayloadTooLarge(
            f"{path:.200} has more than {_MAX_VALUES:,} values; store them elsewhere and pass a reference"
        )
    if kind in _SCALARS:
        if kind is str and not value.isascii() and _SURROGATE_PAIR.search(value):
            raise PayloadNotSerializable(f"{path} has a surrogate pair, which JSON would join; decode the text first")
        if kind is int and value.bit_length() > _MAX_INTEGER_BITS:
            raise PayloadTooLarge(f"{path} is an integer of more than 4,000 digits; send it as hexadecimal text")
        return
    if kind is float:
        if not math.isfinite(value):
            raise PayloadNotSerializable(f"{path} is {value!r}, which JSON does not have; send None or a string")
        return
    if kind is not list and kind is not dict:
        raise PayloadNotSerializable(f"{path} is a {kind.__name__}, which JSON cannot carry unchanged; {_hint(value)}")
    if depth >= MAX_DEPTH:
        while above is not None:
            above, other = above
            if other is value:
                raise PayloadNotSerializable(
                    f"{path:.200} … contains itself, which JSON cannot carry; send a copy or a reference"
                )
        raise PayloadTooLarge(
            f"{path:.200} … is nested deeper than {MAX_DEPTH} levels; send a flatter value or a reference"
        )
    above = (above, value)
    if kind is list:
        for index, item in enumerate(value):
            check_payload(item, f"{path}[{index}]", depth=depth + 1, above=above, budget=budget)
        return
    for key, item in value.items():
        if type(key) is not str:
            raise PayloadNotSerializable(
                f"{path} has a key of type {type(key).__name__}; JSON objects have str keys: convert it with str()"
            )
        check_payload(item, f"{path}[{key!r:.80}]", depth=depth + 1, above=above, budget=budget)


def encode(job: Job, *, max_payload: int) -> tuple[Job, bytes]:
    """Return the job with its flags completed, and its body.

    Arguments are checked by `check_payload` before. Raises `PayloadTooLarge` above `max_payload` bytes.
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
    if body[0] > FORMAT:
        raise NewerBody(f"the job was stored in format {body[0]}, this process reads up to {FORMAT}; update it")
    try:
        payload = json.loads(body[head.size :])
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


def _completed(payload: Any) -> tuple[Any, Any, Any]:
    """Return args, kwargs and options with what was left out for being empty."""
    missing: list[Any] = [[], {}, {}][len(payload) :]
    args, kwargs, options = list(payload) + missing
    return args, kwargs, options


def with_queue(body: bytes, queue: str) -> bytes:
    """Return the same body for another queue."""
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
        if number is not None and type(number) is not int:
            raise ValueError("a time limit must be whole microseconds")
    if key is not None and type(key) is not str:
        raise ValueError("a key must be text")
    return retry, timeout_us, hard_timeout_us, key


def _whole_us(span: Any) -> int:
    return int(span // timedelta(microseconds=1))


def _hint(value: Any) -> str:
    name = type(value).__name__
    if hasattr(value, "_meta") and hasattr(value, "pk"):
        return "send its primary key (value.pk)"
    if name in _HINTS:
        return _HINTS[name]
    if isinstance(value, (str, int)):
        return "convert it with str() or int(), or send value.value of an enum"
    return "convert it to str, int, float, bool, None, list or dict"
