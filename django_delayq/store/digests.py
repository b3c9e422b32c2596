"""Digests: the bytes by which Redis knows unique keys and tenants, and by which jobs are spread over the shards."""

from hashlib import blake2b, sha1

from django_delayq.store.keys import encode_queue


def tenant_digest(tenant: str | None) -> bytes:
    """Return the 8 bytes that identify a tenant; None: all jobs of a fair queue without one."""
    return blake2b((tenant or "").encode("utf-8", "surrogatepass"), digest_size=8).digest()


def routing_of(task: str, key: str | None, tenant: str | None) -> bytes:
    """Return the value that decides on the shard of a job: all jobs of a tenant are in one shard, else those of a key.

    A job with neither is routed by its id.
    """
    return key_digest(task, key or "", None) if tenant is None else tenant_digest(tenant)


def key_digest(task: str, key: str, tenant: str | None) -> bytes:
    """Return the 16 bytes that identify a unique key among the jobs of all tasks and tenants.

    A job with a tenant holds its key among the jobs of that tenant: those of another may be in another shard.
    """
    text, person = (f"{task}\0{key}", b"") if tenant is None else (f"{task}\0{len(tenant)}\0{tenant}{key}", b"tenant")
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16, person=person).digest()


def queue_hash(queue: str) -> bytes:
    """Return the 6 bytes that stand for a queue in front of its tenants, as `_turns.lua` computes them."""
    return sha1(encode_queue(queue).encode(), usedforsecurity=False).digest()[:6]
