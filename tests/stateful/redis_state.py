"""Picture: the whole of Redis as it is, and as the model says it must be. The bells are looked at apart."""

from collections import defaultdict
from functools import cache
from typing import Any
from urllib.parse import unquote

from redis import Redis

from django_delayq.job.result import Result
from django_delayq.store.keys import CATALOGUE, Keys, encode_queue
from django_delayq.store.records import ResultRecord
from tests.stateful.model import Model
from tests.stateful.values import Place

#: Lists of at most one that say "look": judged by what they promise, not by what is in them.
HINTS = ("notify", "notify_dispatcher")


def read(client: Redis, keys: Keys) -> dict[str, Any]:
    """Return every key with its value; all are in the catalogue and have its type, and only results have a TTL."""
    names = [name.decode() for name in client.keys("*")]
    pipeline = client.pipeline(transaction=False)
    for name in names:
        noun = noun_of(name, keys)
        assert noun in CATALOGUE, f"{name} is not in the catalogue"
        pipeline.pttl(name)
        match CATALOGUE[noun][0]:
            case "list" if noun == "results":
                pipeline.lindex(name, 0)
            case "zset":
                pipeline.zrange(name, 0, -1, withscores=True)
            case "hash":
                pipeline.hgetall(name)
            case "set":
                pipeline.smembers(name)
            case "list":
                pipeline.llen(name)
            case _:
                pipeline.get(name)
    answers = pipeline.execute()
    for name, ttl in zip(names, answers[::2], strict=True):
        assert (ttl == -1) == (noun_of(name, keys) != "results"), f"{name} has the TTL {ttl}"
    values = (dict(value) if isinstance(value, list) else value for value in answers[1::2])
    return dict(zip(names, values, strict=True))


@cache
def noun_of(name: str, keys: Keys) -> str:
    """Return the catalogue's word for a key, which must be named as `Keys` names it."""
    noun, _, queue = name.removeprefix(keys("")).partition(":")
    if queue and noun == "results":
        assert name == keys.results(bytes.fromhex(queue)), f"{name} is not what Keys would build"
    elif queue:
        assert name == getattr(keys, noun)(unquote(queue)), f"{name} is not what Keys would build"
    return noun


def plain(picture: dict[str, Any], keys: Keys) -> dict[str, Any]:
    """Return the part of a picture that the model foretells to the byte."""
    told = {name: value for name, value in picture.items() if noun_of(name, keys) not in HINTS}
    if keys("exchanges") in told:
        # The answers kept in there are proved by repeating exchanges.
        exchanges = told[keys("exchanges")]
        told[keys("exchanges")] = {worker: int.from_bytes(kept[:8]) for worker, kept in exchanges.items()}
    for name in told:
        if noun_of(name, keys) == "results":
            kept = ResultRecord.unpack(told[name])
            result = Result.unpack(kept.ending)
            told[name] = kept.attempts, kept.body, str(result and result.state)
    return told


def foretold(model: Model, keys: Keys) -> dict[str, Any]:
    """Return what `plain` must be."""
    told: dict[str, Any] = defaultdict(dict)
    for raw_id, job in model.jobs.items():
        extra = b"\1" + job.digest if job.digest else b""
        if job.place is Place.DEAD:
            told[keys("dead_letters")][raw_id] = job.score
            sizes = len(job.record).to_bytes(4) + len(extra).to_bytes(4)
            told[keys("dead_bodies")][raw_id] = sizes + job.member + job.record + extra + job.body
            continue
        told[keys("jobs")][raw_id] = job.body
        if job.record:
            told[keys("attempts")][raw_id] = job.record
        if job.digest:
            told[keys("job_extras")][raw_id] = extra
            told[keys("unique_keys")][job.digest] = job.member
        if job.place is Place.CLAIMED:
            told[keys("leases")][job.lease] = job.score
            run = job.token + job.claimed_us.to_bytes(8) + job.rank.to_bytes(8) + b"\0"
            told[keys("claim_records")][raw_id] = run
            if job.unconfirmed:
                told[keys("unconfirmed")] = {*told[keys("unconfirmed")], job.lease}
        else:
            of_queue = {Place.SCHEDULED: keys.scheduled, Place.READY: keys.ready, Place.RECOVERED: keys.recovered}
            told[of_queue[job.place](job.queue)][job.member] = job.score
    if dead := told.get(keys("dead_bodies")):
        told[keys("dead_bytes")] = str(sum(map(len, dead.values()))).encode()
    for raw_id, kept in model.results.items():
        told[keys.results(raw_id)] = kept
    told[keys("queues")] = {encode_queue(queue).encode(): used for queue, used in model.queues.items()}
    told[keys("queues_version")] = model.told_version
    for job in model.at(Place.SCHEDULED):
        first = told[keys("next_due")].get(queue := encode_queue(job.queue).encode(), job.score)
        told[keys("next_due")][queue] = min(first, job.score)
    told[keys("cancelled")], told[keys("withdrawn")] = model.cancelled, model.withdrawn
    told[keys("workers")] = model.workers
    told[keys("dispatchers")] = model.dispatchers
    told[keys("paused")] = {keys.ready(queue).encode(): b"%d ann" % at for queue, at in model.paused.items()}
    told[keys("exchanges")] = {worker: number for worker, (number, _, _) in model.exchanges.items()}
    told[keys("worker_names")] = dict.fromkeys(model.described, b"driven")
    if model.wake_at is not None:
        told[keys("next_promotion")] = str(model.wake_at).encode()
    if model.no_reclaim_before:
        told[keys("no_reclaim_before")] = str(model.no_reclaim_before).encode()
    return {name: value for name, value in told.items() if value}
