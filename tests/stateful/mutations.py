"""Planted bugs that the state machine must catch: wrong versions of the package, each as exact replacements."""

from dataclasses import dataclass

EXCHANGE, PROMOTE, RECLAIM = "store/lua/settle_and_claim.lua", "store/lua/promote.lua", "store/lua/reclaim.lua"
CANDIDATES = "store/lua/_candidates.lua"
ENQUEUE, REQUEUE, PRELUDE = "store/lua/enqueue.lua", "store/lua/requeue.lua", "store/lua/_prelude.lua"
EXTRAS, PLACES = "store/lua/_extras.lua", "store/lua/_places.lua"
SPREAD, REPLACE = "store/lua/take_places.lua", "store/lua/replace.lua"


@dataclass(frozen=True)
class Mutation:
    """One bug: its effect, and (file, text that occurs once there, its replacement) for each place."""

    name: str
    edits: tuple[tuple[str, str, str], ...]

    @classmethod
    def at(cls, name: str, file: str, text: str, replacement: str = "") -> "Mutation":
        """Return a bug that is a single edit."""
        return cls(name, ((file, text, replacement),))


at = Mutation.at

#: The bugs that every run plants: one for each promise of the engine.
FIRST = [
    at(
        "a claim leaves the job in ready",
        EXCHANGE,
        "  redis.call('ZREM', place, unpack(members))",
    ),
    at(
        "a job is acknowledged by its id, whoever holds its lease",
        EXCHANGE,
        "settled[#settled + 1] = string.sub(acknowledged, i, i + 29) end",
        "local lease = string.sub(acknowledged, i, i + 29) "
        "local run = redis.call('HGET', claim_records, string.sub(lease, 1, 12)) "
        "settled[#settled + 1] = run and string.sub(lease, 1, 14) .. string.sub(run, 1, 16) or lease end",
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
        "an acknowledged job keeps its unique key",
        EXCHANGE,
        "      delete_extras(member)\n      done",
        "      done",
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
    at("a repeated exchange claims again", EXCHANGE, "if number == last_number then", "if false then"),
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

#: The bugs of the long form.
MORE = [
    at(
        "a job is promoted one microsecond late", PROMOTE, "tonumber(head[2]) <= now and", "tonumber(head[2]) < now and"
    ),
    at(
        "promoted jobs are ranked by the time of promotion",
        PROMOTE,
        "tonumber(found[i + 1]), head_start",
        "now, head_start",
    ),
    at("a promoted job stays scheduled", PROMOTE, "redis.call('ZREM', scheduled, unpack(members))"),
    at("a lease's end does not wake the dispatcher", PROMOTE, "if lease[2] then wake", "if false then wake"),
    at(
        "expired leases are returned a microsecond late",
        PROMOTE,
        "leases, '-inf', expired_by,",
        "leases, '-inf', expired_by - 1,",
    ),
    at("removed dead letters keep their bodies", PLACES, "redis.call('HDEL', dead_bodies, unpack(ids))"),
    at(
        "the records of a dead worker are kept",
        PROMOTE,
        "for _, key in ipairs({worker_names, exchanges, process_reports, quiet_workers}) do",
        "for _, key in ipairs({worker_names}) do",
    ),
    at(
        "a reclaimed job goes to the end of its queue",
        RECLAIM,
        "return (struct.unpack('>I8', claim, 25))",
        "return rank_of(lease, now, head_start)",
    ),
    at("a reclaimed job runs among others", RECLAIM, "(crash_suspected(record) and 4 or 2)", "2"),
    at("an interrupted job goes to the end", "store/claims.py", 'claim.rank if decision.keeps_rank else b""', 'b""'),
    at("no reply announces recovered jobs", EXCHANGE, "recovered and 1 or 0,", "0,"),
    at("a claim behind a pop is confirmed at once", EXCHANGE, "2, blocking and #lease_entries or 0, 2", "2, 0, 2"),
    at(
        "a settled lease stays unconfirmed",
        EXCHANGE,
        "redis.call('SREM', unconfirmed, '', unpack(alive))",
        "",
    ),
    at("a reclaimed lease stays unconfirmed", RECLAIM, "    redis.call('SREM', unconfirmed, lease)\n", ""),
    at(
        "an expired unconfirmed claim is counted",
        "dispatcher.py",
        "if item.unconfirmed and item.queue is not None and",
        "if False and",
    ),
    at(
        "a heartbeat does not confirm a claim",
        "store/lua/heartbeat.lua",
        "unconfirmed, '', unpack(held))",
        "unconfirmed, '')",
    ),
    at(
        "the blocking exchange of a process that has left claims jobs",
        EXCHANGE,
        " or blocking and not last then",
        " then",
    ),
    at(
        "a cancelled exchange keeps the notification",
        EXCHANGE,
        "then notify_workers(KEYS[base + 1]) end",
        "then end",
    ),
    at("reclaim is a microsecond late", RECLAIM, "tonumber(lease_end) <= now", "tonumber(lease_end) < now"),
    at("an expired lease is not counted", RECLAIM, "redis.call('HSET', attempts, id, record)"),
    at("reclaim keeps the claim record", RECLAIM, "redis.call('HDEL', claim_records, id)"),
    at("a failed attempt is not counted", EXCHANGE, "redis.call('HSET', attempts, id, retry.record)"),
    at(
        "a release counts as an attempt",
        EXCHANGE,
        "if retry.record then redis.call('HSET', attempts, id, retry.record) end",
        "redis.call('HSET', attempts, id, retry.record or '\\0\\1\\0')",
    ),
    at(
        "a retry does not notify",
        EXCHANGE,
        "put_scheduled(KEYS[base + 1], {retry.due, member})",
        "redis.call('ZADD', KEYS[base + 1], retry.due, member) index_due(KEYS[base + 1])",
    ),
    at(
        "a release does not notify",
        EXCHANGE,
        "put_ready(now, KEYS[base + 2], KEYS[base + 3], {retry.rank, member})",
        "redis.call('ZADD', KEYS[base + 2], retry.rank, member) list_queue(now, KEYS[base + 2])",
    ),
    at("a retry's due time loses digits", EXCHANGE, "{retry.due, member}", "{tonumber(retry.due .. ''), member}"),
    at(
        "jobs that remain do not notify",
        EXCHANGE,
        "if not notified[queue] then notified[queue] = true; push_notification(",
        "if false then push_notification(",
    ),
    at("a stale exchange is applied", EXCHANGE, "if number < last_number then", "if false then"),
    at(
        "a repeated exchange returns claims that were lost since",
        EXCHANGE,
        "if redis.call('ZSCORE', leases, member .. token) then\n          held",
        "if true then\n          held",
    ),
    at("a large job is claimed together with other jobs", EXCHANGE, " or has(entry.member, LARGE)"),
    at(
        "strict order of queues is ignored",
        CANDIDATES,
        "if request.strict and a.queue ~= b.queue then return a.queue < b.queue end",
    ),
    at(
        "an ended job keeps its claim record",
        EXCHANGE,
        "if #ended > 0 then redis.call('HDEL', claim_records, unpack(ended)) end",
    ),
    at("an acknowledged job keeps its attempts", EXCHANGE, "redis.call('HDEL', attempts, unpack(done))"),
    at(
        "an enqueue with the id of a dead letter creates a job",
        ENQUEUE,
        " and redis.call('HEXISTS', dead_bodies, id) == 0",
    ),
    at("one batch stores two jobs with the same unique key", ENQUEUE, "holders[job.key] or redis.call", "redis.call"),
    at(
        "an enqueue overwrites a job with the same id",
        ENQUEUE,
        "if redis.call('HEXISTS', jobs, job.id) == 0 then",
        "if true then",
    ),
    at(
        "requeue takes a key that another job holds",
        REQUEUE,
        "redis.call('HEXISTS', unique_keys, key) == 1",
        "false",
    ),
    at(
        "a spread is too slow for more jobs than it has places", SPREAD, "if count > stored_count then", "if false then"
    ),
    at(
        "a spread for more jobs begins on top of the places that are taken",
        SPREAD,
        "start = math.max(now, began + math.ceil(taken))",
        "start = now",
    ),
    at("the first caller that ends forgets the spread of the others", SPREAD, "if others > 0 then", "if false then"),
    at("a second caller of a spread is not counted", SPREAD, "(first and 1 or 0)", "0"),
    at(
        "a started job keeps the key that it holds until its start",
        "store/lua/settle_and_claim.lua",
        "    give_up_key(claim.member)\n",
    ),
    at(
        "a job that is claimed by a person keeps its key after its start",
        "store/lua/claim_one.lua",
        "give_up_key(member)\n",
    ),
    at(
        "a started job takes the key of another job with it",
        EXTRAS,
        "if not key then return end\n  if redis.call('HGET', unique_keys, key) == member then",
        "if not key then return end\n  if true then",
    ),
    at(
        "a job that waits again does not hold its key",
        "store/lua/settle_and_claim.lua",
        "for _, member in ipairs(waiting) do take_key_again(member) end\n",
    ),
    at("a reclaimed job does not hold its key", "store/lua/reclaim.lua", "      take_key_again(member)\n"),
    at(
        "a job that waits again takes the key of another one",
        EXTRAS,
        "if key and redis.call('HEXISTS', unique_keys, key) == 0 then redis.call('HSET', unique_keys, key, member) end",
        "if key then redis.call('HSET', unique_keys, key, member) end",
    ),
    at(
        "a dead letter takes the key of another job",
        REQUEUE,
        "if key and not is_held then redis.call",
        "if key then redis.call",
    ),
    at(
        "a dead letter that needs no key until its end is refused for it",
        REQUEUE,
        "if is_held and not until_start then",
        "if is_held then",
    ),
    at(
        "each call of a series counts as the first",
        REPLACE,
        "if not first_call or first_call == 0 then",
        "if true then",
    ),
    at("a series waits for as long as calls arrive", REPLACE, "math.min(due or now, first_call + job.max_wait)", "due"),
    at("a call puts its ready job behind others", REPLACE, "rank = math.min(rank, tonumber(job.score))", ""),
    at(
        "a replaced job keeps its turn in spite of another priority",
        REPLACE,
        "string.byte(job.holder, 13) == string.byte(job.member, 13) and not",
        "not",
    ),
    at(
        "a series that has begun to run goes on",
        EXTRAS,
        "with_first_call(record, 0)",
        "record",
    ),
    at("a replaced job keeps its attempts", REPLACE, "    redis.call('HDEL', attempts, job.id)\n"),
    at("a replaced job also stays in its old place", REPLACE, "    leave(job.place, job.holder, job.score)\n"),
    at(
        "the due time of a job that left scheduled stays in the index",
        PLACES,
        "  if is_scheduled(place) then index_due(place) end\n",
    ),
    at("a job that replaces a running one is refused", REPLACE, "and 'KEPT' or 'ELSEWHERE'", "and 'ELSEWHERE'"),
    at("a replaced job does not hold its key", REPLACE, "  redis.call('HSET', unique_keys, job.key, job.member)\n"),
    at("requeue does not take the key", REQUEUE, "redis.call('HSET', unique_keys, key, member)"),
    at(
        "requeue does not reset the attempts",
        "store/operations/dead_letters.py",
        "cipher=self._cipher).revived()",
        "cipher=self._cipher)",
    ),
    at("a pause with an end is never ended", PROMOTE, "      redis.call('HDEL', paused, ready)\n"),
    at(
        "a job that a person claims stays where it waited",
        "store/lua/claim_one.lua",
        "leave(place, member, score)\n",
    ),
    at(
        "a claim of one job is confirmed before its worker has it",
        "store/lua/claim_one.lua",
        "redis.call('SADD', unconfirmed, member .. token)\n",
    ),
    at(
        "a person claims a job that runs elsewhere",
        "store/lua/claim_one.lua",
        "if not place then return {why_not_waiting(id)} end",
        "if not place and redis.call('HEXISTS', jobs, id) == 0 then return {why_not_waiting(id)} end "
        "place, score = place or ready, score or now",
    ),
    at(
        "a claim before its time forgets the due time",
        "store/lua/claim_one.lua",
        "is_ahead and 2 or 0)\n"
        "redis.call('HSET', claim_records, id, record .. (is_ahead and struct.pack('>I8', due) or ''))",
        "0)\nredis.call('HSET', claim_records, id, record)",
    ),
    at(
        "a job claimed before its time is reclaimed as ready", RECLAIM, "math.max(now + delay, due or 0)", "now + delay"
    ),
    at(
        "a job claimed before its time is given back as ready",
        EXCHANGE,
        "    retry.rank, retry.due = nil, math.max(retry.due or 0, due)\n",
    ),
    at("a due time shortens the delay of a retry", EXCHANGE, "math.max(retry.due or 0, due)", "due"),
    at("a stop ends the wait for the due time", "store/lua/stop.lua", "flags - flags % 2 + 1", "1"),
    at("discard ignores the time of death", "store/lua/discard.lua", " and tonumber(score) == died"),
    at("a cancelled job keeps its key", "store/lua/cancel.lua", "delete_extras(member)"),
    at(
        "a job that was asked to stop is retried",
        EXCHANGE,
        "    table.remove(alive, again[number])\n",
    ),
    at(
        "a repeated exchange does not say which outcomes were refused",
        EXCHANGE,
        "string.sub(last, stopped_at, stopped_at + stopped_size - 1)",
        "''",
    ),
    at(
        "a job that was asked to stop after it was judged is ended by that judgement",
        RECLAIM,
        "stops == (queue == -1)\n    and ",
        "",
    ),
    at("a stopped job keeps its attempts", RECLAIM, "      redis.call('HDEL', attempts, id)\n"),
    at(
        "progress ends a stop",
        "store/lua/heartbeat.lua",
        "string.sub(record, 1, progress_at - 1)",
        "string.sub(record, 1, 33)",
    ),
    at("a stop ends progress", "store/lua/stop.lua", " .. rest)", ")"),
    at("a second stop keeps a part of the first", "store/lua/stop.lua", "and 42 or 34", "and 34 or 34"),
    at("a running job can be cancelled", PLACES, "return 'LATE'", "return 'CANCELLED'"),
    at("a move leaves the old queue in the body", "store/lua/move.lua", "redis.call('HSET', jobs, id, new_body)"),
    Mutation(
        "a late heartbeat revives a lost lease",
        (
            ("store/lua/heartbeat.lua", "if score then", "if true then"),
            ("store/lua/heartbeat.lua", "leases, 'XX', unpack(ends)", "leases, unpack(ends)"),
        ),
    ),
    at("every job has the head start", PRELUDE, "if has(member, DELAYED) then rank", "if true then rank"),
    at("an earlier due time does not notify", PRELUDE, "if first < (tonumber", "if first > (tonumber"),
    at("a dead letter keeps its attempts", PLACES, "  redis.call('HDEL', attempts, id)\n"),
    at(
        "a crash is not suspected",
        "job/outcome.py",
        "suspect = ending in (OutcomeKind.CRASHED, OutcomeKind.LEASE_EXPIRED)",
        "suspect = False",
    ),
    at(
        "a span does not follow the due time of a reschedule",
        "store/operations/waiting_jobs.py",
        "move_expiry(self._shard, job.raw_id, with_flags(stored, flags), due_us)",
        "with_flags(stored, flags)",
    ),
    at(
        "a span begins when the job is made, not when it is due",
        "store/enqueue.py",
        "body = with_due(body, max(now_us, due_us))",
        "body = with_due(body, now_us)",
    ),
    at(
        "a retry of a dead letter is expired already",
        "store/operations/dead_letters.py",
        "if change is not None or head.expires:",
        "if change is not None:",
    ),
    at(
        "a retried dead letter keeps its snoozes and interruptions",
        "job/attempts.py",
        "return AttemptHistory(history=self.history, sealed=self.sealed)",
        "return replace(self, ended=0, crash_suspected=False, spared=False, interrupted=False)",
    ),
    at(
        "a retried dead letter loses its history",
        "job/attempts.py",
        "return AttemptHistory(history=self.history, sealed=self.sealed)",
        "return NO_ATTEMPTS",
    ),
    at("one attempt too many", "job/retry.py", "attempt < self.max_attempts", "attempt <= self.max_attempts"),
    at(
        "the dispatcher counts one attempt too few",
        "dispatcher.py",
        "attempt=item.attempts.ended + 1",
        "attempt=item.attempts.ended",
    ),
]
