"""Planted bugs, one for each promise of the engine: every run of the tests tries the first ones, slow runs all."""

from tests.stateful.mutations.mutation import EXCHANGE, PLACES, PROMOTE, RECLAIM, REQUEUE, Mutation

at = Mutation.at

FIRST = [
    at(
        "a claim leaves the job in ready",
        EXCHANGE,
        "  redis.call('ZREM', place, unpack(members))",
    ),
    Mutation(
        "a worker's next claim has the same token",
        (
            (EXCHANGE, "worker .. struct.pack('>I8', number)", "worker .. struct.pack('>I8', 1)"),
            (
                "store/claims.py",
                "self.worker_id + self.number.to_bytes(8)",
                "self.worker_id + (1).to_bytes(8)",
            ),
        ),
    ),
    at(
        "an acknowledged job keeps its unique key",
        EXCHANGE,
        "      if has_extras then end_job(now, member, outcomes[lease] or RUN_DONE) end\n      done",
        "      done",
    ),
    at("a repeated exchange claims again", EXCHANGE, "if number == last_number then", "if false then"),
]

PROMISES = [
    Mutation(
        "a job is promoted one microsecond early",
        (
            (PROMOTE, "tonumber(head[2]) <= now and", "tonumber(head[2]) <= now + 1 and"),
            (PROMOTE, "scheduled, '-inf', now,", "scheduled, '-inf', now + 1,"),
        ),
    ),
    at(
        "a reclaim takes back a lease that a late heartbeat extended",
        RECLAIM,
        "lease_end and tonumber(lease_end) <= now",
        "lease_end",
    ),
    at(
        "a late worker stores a result",
        EXCHANGE,
        "if not ends[i] then lost",
        "if not ends[i] and not results[lease] then lost",
    ),
    at(
        "a result loses the history of earlier attempts",
        PLACES,
        "local record, body = redis.call('HGET', attempts, id) or '',",
        "local record, body = '',",
    ),
    at(
        "a requeue ignores the time of death",
        REQUEUE,
        " or tonumber(score) ~= tonumber(died)",
    ),
    at(
        "a crashed job is claimed among others",
        EXCHANGE,
        "local alone, limited = suspect or has(entry.member, LARGE)",
        "local alone, limited = has(entry.member, LARGE)",
    ),
    at("promote does not write the next promotion", PROMOTE, "redis.call('SET', next_promotion, wake)\n"),
]
