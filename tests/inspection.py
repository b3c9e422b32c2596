"""Inspection: a `Lookup` that also counts jobs and finds dead letters, as tests compare them."""

from operator import add
from typing import Any, NamedTuple

from redis import Redis

from django_delayq import get_store
from django_delayq.job.job import State
from django_delayq.store.queries.job_pages import JobRow
from django_delayq.store.queries.lookup import Lookup


class Counts(NamedTuple):
    """Jobs by state; the waiting ones by queue."""

    scheduled: dict[str, int]
    #: Recovered jobs are ready, too.
    ready: dict[str, int]
    claimed: int
    dead: int


class Inspection(Lookup):
    """What tests read of one shard."""

    def counts(self) -> Counts:
        """Return how many jobs wait, run and are dead; not as of one moment."""
        queues, keys = self._shard.read_queues(), self._shard.keys
        places = [(keys.scheduled(queue), keys.ready(queue), keys.recovered(queue)) for queue in queues]
        nouns = (keys("leases"), keys("dead_letters"))
        commands = [["ZCARD", key] for key in (*(key for place in places for key in place), *nouns)]
        *waiting, claimed, dead = self._shard.execute_all(commands)
        return Counts(
            scheduled=dict(zip(queues, waiting[::3], strict=True)),
            ready=dict(zip(queues, map(add, waiting[1::3], waiting[2::3]), strict=True)),
            claimed=claimed,
            dead=dead,
        )

    def dead_letter(self, raw_id: bytes) -> JobRow | None:
        """Return a dead letter, or None if the job is in another state."""
        found = self.find(raw_id)
        return found if found.state is State.DEAD else None


def inspection(shard: int = 0) -> Inspection:
    """Return what tests read of a shard of this process's store."""
    return Inspection(get_store()._producer_shards[shard])


def everything(client: Redis) -> bytes:
    """Return all bytes of all keys and values. Not of DUMP, which compresses."""
    found: list[Any] = []
    for name in client.keys("*"):
        found.append(name)
        match kind := client.type(name).decode():
            case "string":
                found.append(client.get(name))
            case "hash":
                found += [part for pair in client.hgetall(name).items() for part in pair]
            case "list":
                found += client.lrange(name, 0, -1)
            case "zset":
                found += client.zrange(name, 0, -1)
            case "set":
                found += client.smembers(name)
            case _:
                raise AssertionError(f"{name!r} is a {kind}")
    return b"\n".join(found)
