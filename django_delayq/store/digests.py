"""Digests: the bytes by which Redis knows keys, tenants and limits, and by which jobs are spread over the shards."""

from collections.abc import Sequence
from hashlib import blake2b, sha1

from django_delayq.job.job import LimitUse
from django_delayq.store.keys import encode_queue
from django_delayq.store.records import ExtrasRecord


def tenant_digest(tenant: str | None) -> bytes:
    """Return the 8 bytes that identify a tenant; None: all jobs of a fair queue without one."""
    return blake2b((tenant or "").encode("utf-8", "surrogatepass"), digest_size=8).digest()


def limit_digest(name: str, value: str | None) -> bytes:
    """Return the 12 bytes that identify a limit: 4 of its name, 8 of its value."""
    return limit_name_digest(name) + tenant_digest(value)


def limit_name_digest(name: str) -> bytes:
    """Return the 4 bytes under which the rule of a limit is stored."""
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4, person=b"limit").digest()


def paused_task_digest(task: str) -> bytes:
    """Return the 12 bytes that stand for a paused task in place of a limit."""
    return b"task" + tenant_digest(task)


def schedule_id(task: str, name: str) -> bytes:
    """Return the 8 bytes by which Redis knows a recurring schedule of a task."""
    text = f"{task}\0{name}".encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=8, person=b"schedule").digest()


def routing_of(task: str, key: str | None, tenant: str | None, limits: Sequence[LimitUse] = ()) -> bytes | None:
    """Return the value that decides on the shard of a job: its limits, else its tenant, else its key.

    All jobs of a value of a limit are in one shard. A job with none of these is routed by its id: None is returned.
    Raises ValueError if the limits lead to several shards.
    """
    if limits:
        routings = {limit_digest(*limit)[4:] if limit.value is not None else limit_digest(*limit) for limit in limits}
        if len(routings) > 1:
            names = ", ".join(limit.name for limit in limits)
            raise ValueError(
                f"the limits {names} are kept in different shards; with SHARDS > 1 give them all the same value, such "
                f"as an account, or use one of them"
            )
        return routings.pop()
    if tenant is not None:
        return tenant_digest(tenant)
    return None if key is None else key_digest(task, key, None)


def routings_of(extras: ExtrasRecord) -> tuple[str, list[bytes]]:
    """Return what a job is spread by, for people, and its routing values; "" and none if by its id or its schedule.

    Several, if its limits were enqueued when there was one shard.
    """
    if extras.schedule:
        return "", []
    if extras.limits:
        return "limit", list({routing_of_limit(digest) for digest, _ in extras.limits})
    if extras.tenant and extras.tenant != tenant_digest(None):
        return "tenant", [extras.tenant]
    if digest := extras.digest or extras.throttle:
        return "key", [digest]
    return "", []


def routing_of_limit(digest: bytes) -> bytes:
    """Return the routing value of the 12 bytes that identify a limit."""
    return digest if digest[4:] == tenant_digest(None) else digest[4:]


def key_digest(task: str, key: str, tenant: str | None) -> bytes:
    """Return the 16 bytes that identify a unique key among the jobs of all tasks and tenants.

    A job with a tenant holds its key among the jobs of that tenant: those of another may be in another shard.
    """
    text, person = (f"{task}\0{key}", b"") if tenant is None else (f"{task}\0{len(tenant)}\0{tenant}{key}", b"tenant")
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, person=person).digest()


def queue_hash(queue: str) -> bytes:
    """Return the 6 bytes that stand for a queue in front of its tenants, as `_turns.lua` computes them."""
    return sha1(encode_queue(queue).encode(), usedforsecurity=False).digest()[:6]
