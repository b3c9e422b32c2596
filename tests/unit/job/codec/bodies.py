"""What the tests of the codec share: a job, its body, and what may stand in it."""

from datetime import timedelta
from typing import Any

from hypothesis import strategies as some

from django_delayq.job.body.codec import decode, encode
from django_delayq.job.ids import next_id
from django_delayq.job.job import Job
from django_delayq.job.retry import LONGEST_DELAY, RetryPolicy

#: No verdict from how long an example took: the machine may be busy.
MEGABYTE = 1024 * 1024


def job_of(*args: Any, **facts: Any) -> Job:
    return Job(raw_id=next_id(), shard=0, **{"task": "shop.tasks.remind", "queue": "mail", "args": list(args), **facts})


def sent(job: Job) -> Job:
    """Send a job through its body."""
    job, body = encode(job, max_payload=8 * MEGABYTE)
    return decode(body, raw_id=job.raw_id, shard=job.shard)


surrogates_not_paired = some.text(some.characters(exclude_categories=())).filter(
    lambda text: text == text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
)
json_values = some.recursive(
    some.none()
    | some.booleans()
    | some.integers(min_value=-(2**200), max_value=2**200)
    | some.floats(allow_nan=False, allow_infinity=False)
    | surrogates_not_paired,
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(surrogates_not_paired, inner, max_size=4),
    max_leaves=20,
)


names = some.text(some.characters(exclude_categories=()), min_size=1, max_size=40)
policies = some.builds(
    RetryPolicy,
    max_attempts=some.integers(min_value=1, max_value=1_000),
    base=some.timedeltas(min_value=timedelta(0)),
    cap=some.timedeltas(min_value=timedelta(0)),
    on_error=some.booleans(),
)
paths = some.lists(some.sampled_from(["builtins.OSError", "shop.errors.Declined", "a.B.C"]), unique=True, max_size=3)
#: Policies that have more than the four numbers of format 1.
policies_with_rules = some.builds(
    RetryPolicy,
    max_attempts=some.none() | some.integers(min_value=1, max_value=1_000),
    base=some.timedeltas(min_value=timedelta(0)),
    on_error=some.booleans(),
    retry_on=paths.map(tuple),
    dead_on=paths.map(tuple),
    delays=some.lists(some.timedeltas(min_value=timedelta(0), max_value=LONGEST_DELAY), max_size=3).map(tuple),
)


def read(body: bytes | None) -> Job:
    return decode(body, raw_id=bytes(12), shard=0)
