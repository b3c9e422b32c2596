"""Jobs in the states that the admin's tests need: of any task, with any arguments, dead of any error."""

from datetime import UTC, datetime
from time import monotonic
from typing import Any

from django_delayq.clock import moment_us
from django_delayq.job.ids import from_text, next_id, to_text
from django_delayq.job.job import Expiry, Job
from django_delayq.job.outcome import Action, Decision
from django_delayq.job.retry import RetryPolicy
from django_delayq.store.claims import Settlement
from tests.factories import unsent
from tests.shard_apis import ShardApis, settlement

HOUR = 3_600_000_000
_NEXT_YEAR = datetime.now(UTC).year + 1
#: Noon of a day in summer, as a form has it. A far year would be later than MAX_DELAY allows.
SUMMER_NOON = f"{_NEXT_YEAR}-06-01T12:00"
#: That noon in Berlin, in µs since the epoch.
SUMMER_NOON_US = moment_us(datetime(_NEXT_YEAR, 6, 1, 10, tzinfo=UTC))
RETRY = RetryPolicy(max_attempts=3)
NOOP = "tests.sample_app.tasks.noop"
#: Text that breaks pages which do not escape it.
HOSTILE = "<script>alert(1)</script> \"'& ../../ \x00\x1b[31m \u202e \ud800 {{ x }} {% x %} %s %(n)s"
#: The same text as a browser posts it.
POSTED = HOSTILE.encode("utf-8", "replace").decode()
TRACEBACK = (
    'Traceback (most recent call last):\n  File "/srv/tasks.py", line 5, in send\n    raise Broken("x")\n'
    "shop.errors.Broken: could not send\nthe second line: of the message\n"
)


def add(
    apis: ShardApis,
    *args: Any,
    task: str = NOOP,
    queue: str = "default",
    delay: int | None = HOUR,
    unique_by: str | None = None,
    raw_id: bytes | None = None,
    expiry: Expiry | None = None,
    ttl: int | None = None,
    context: dict[str, Any] | None = None,
    retry: RetryPolicy = RETRY,
    limits_us: tuple[int | None, int | None] = (None, None),
    **kwargs: Any,
) -> str:
    """Enqueue one job and return its id as text; `delay` in µs, None: ready at once; `raw_id` None: an id of now."""
    job = Job(
        raw_id=raw_id or next_id(),
        shard=apis.shard.index,
        task=task,
        queue=queue,
        args=list(args),
        kwargs=kwargs,
        retry=retry,
        timeout_us=limits_us[0],
        hard_timeout_us=limits_us[1],
        key=unique_by,
        expiry=expiry,
        result_ttl_us=ttl,
        context=context,
    )
    draft = unsent(job, max_payload=4_000_000)
    apis.enqueue(draft.rescheduled(delay_us=delay, due_us=None, called_at=monotonic()))
    return job.id


def claim(apis: ShardApis, text_id: str, *, queue: str = "default") -> Any:
    """Let a worker claim a ready job; return the worker and the claim."""
    worker = apis.worker()
    claims = worker.take(64, queue, description="web1:4411").claims
    (mine,) = [one for one in claims if to_text(one.raw_id, apis.shard.index) == text_id]
    others = [settlement(one, Action.RELEASE) for one in claims if one is not mine]
    worker.take(0, settle=others)
    return worker, mine


def add_dead(
    apis: ShardApis,
    *args: Any,
    error: str = TRACEBACK,
    ending: str = "failed",
    exception: str = "",
    queue: str = "default",
    **kwargs: Any,
) -> str:
    """Enqueue one job and let it die of an error; return its id as text."""
    text_id = add(apis, *args, queue=queue, delay=None, **kwargs)
    worker, mine = claim(apis, text_id, queue=queue)
    attempts = mine.attempts.add(worker="w", started_us=1, ended_us=2, ending=ending, error=error, exception=exception)
    decision = Decision(action=Action.DEAD_LETTER, delay_us=0, crash_suspected=False)
    worker.take(0, settle=[Settlement(claim=mine, decision=decision, attempts=attempts)])
    return text_id


def state(apis: ShardApis, text_id: str) -> str:
    """Return where a job is: "scheduled", "ready", "claimed", "dead" or "gone"."""
    return str(apis.inspection.find(raw(text_id)).state)


def due_us(apis: ShardApis, text_id: str) -> int:
    """Return when a job is due, or died."""
    return int(apis.inspection.find(raw(text_id)).moment_us)


def raw(text_id: str) -> bytes:
    """Return an id's bytes."""
    raw_id, _ = from_text(text_id) or (b"", 0)
    return raw_id
