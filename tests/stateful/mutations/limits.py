"""Planned bugs of limits that the state machine must catch with jobs that have limits; see `mutation.py`."""

from tests.stateful.mutations.mutation import EXCHANGE, PARKING, PLACES, PROMOTE, RECLAIM, Mutation

LIMITS_LUA, LET_IN = "store/lua/_limits.lua", "store/lua/let_in.lua"
CLAIM_ONE, TAKE, GIVE_BACK = "store/lua/claim_one.lua", "store/lua/take_slot.lua", "store/lua/give_back_slot.lua"

at = Mutation.at

#: How jobs leave a place or end.
_ENDS = [
    at(
        "a job that was let in, and leaves, is counted on",
        PLACES,
        " elseif has(member, LIMITED) then forget_let_in(place, member) end",
        " end",
    ),
    at(
        "a job that was let in leaves, and no other one is let in",
        LIMITS_LUA,
        "if redis.call('ZREM', limit_jobs, entry) == 1 then schedule_let_in(limit.id, 0) end",
        "redis.call('ZREM', limit_jobs, entry)",
    ),
    at("a parked job leaves its entries behind", PLACES, "if is_parked(place) then unpark(place, member, score) else"),
    at("a job that was parked still waits for a limit", LIMITS_LUA, "  redis.call('HDEL', waiting_for, job_id)\n"),
    at("a settled job keeps its slots", EXCHANGE, "    if held then free_slots(", "    if false then free_slots("),
    at("a reclaimed job keeps its slots", RECLAIM, "    if held then free_slots(", "    if false then free_slots("),
    at(
        "an ended claim leaves the list of its limits",
        LIMITS_LUA,
        "  redis.call('HDEL', claim_limits, string.sub(lease, 1, 12))\n",
    ),
    at(
        "a freed slot does not wake the dispatcher",
        LIMITS_LUA,
        "  if known then state.slots = state.slots - removed end\n  schedule_let_in(id, opens_at(state, 1))\n",
        "  if known then state.slots = state.slots - removed end\n",
    ),
    at(
        "a freed slot is free from the next call on",
        LIMITS_LUA,
        "  if known then state.slots = state.slots - removed end\n",
    ),
    at(
        "a released job does not give back what it cost",
        EXCHANGE,
        "retry and retry.paused_task and retry.claimed",
        "nil",
    ),
    at("a job that ran gives back what it cost", EXCHANGE, "retry and retry.paused_task and retry.claimed", "now"),
    at(
        "a job gives back what has passed",
        LIMITS_LUA,
        "math.max(0, limit.cost * state.interval - math.max(0, now - unbegun_since))",
        "limit.cost * state.interval",
    ),
    at(
        "a spared claim does not give back what it cost",
        RECLAIM,
        "queue > 0 and is_spared(record) and claimed_at(claim)",
        "nil",
    ),
    at(
        "a job of a paused task costs its tenant a turn",
        EXCHANGE,
        "if retry.rank and retry.has_paid then",
        "if retry.rank and retry.has_paid and paused_task == '' then",
    ),
    at("slots of code outside jobs are kept", PROMOTE, "  redis.call('ZREM', limit_jobs, SLOT .. holder)\n"),
    at(
        "times that have passed are kept",
        PROMOTE,
        "if #passed > 0 then redis.call('ZREM', limit_times, unpack(passed)) end\n",
    ),
    at("a queue with parked jobs is removed", PROMOTE, "ready, KEYS[base + 4], KEYS[base + 5]) > 0", "ready) > 0"),
    at(
        "a slot that is given back stays in the list of the claim",
        GIVE_BACK,
        "if #held > 0 then redis.call('HSET', claim_limits, job_id, kept) end\n",
    ),
]

#: Who may begin, and what that costs.
_CLAIMS = [
    at("one job too many runs", LIMITS_LUA, "state.slots >= state.most", "state.slots > state.most"),
    at(
        "one job too many begins at once",
        LIMITS_LUA,
        "(cost - math.max(state.burst, cost))",
        "(cost - 1 - math.max(state.burst, cost))",
    ),
    at("a cost counts once", LIMITS_LUA, "state.time + cost * state.interval", "state.time + state.interval"),
    at(
        "a task that backs off keeps nobody back",
        LIMITS_LUA,
        "math.max(state.back_off, state.time",
        "math.max(0, state.time",
    ),
    at(
        "a claim does not move the time on",
        LIMITS_LUA,
        "  if state.interval > 0 then redis.call('ZADD', limit_times, state.time, limit.id) end\n",
    ),
    at(
        "a claim does not tell when the next job may begin",
        LIMITS_LUA,
        "limit_times, state.time, limit.id) end\n  schedule_let_in(limit.id, opens_at(state, 1))\n",
        "limit_times, state.time, limit.id) end\n",
    ),
    at(
        "a time that is too far ahead stays there",
        LIMITS_LUA,
        "  if state.is_too_far then redis.call('ZADD', limit_times, state.time, id) end\n",
    ),
    Mutation(
        "limits that are open are charged for a job that another one closes out",
        (
            (
                PARKING,
                "    if moment > now then return limit.id, moment end\n",
                "    if moment > now then return limit.id, moment end\n    count_in_limit(state, limit.cost)\n",
            ),
            (
                PARKING,
                "  if not entry.waits_for then count_in_limits(now, limits) end\n",
                "",
            ),
        ),
    ),
    at(
        "a newcomer goes before those that wait",
        PARKING,
        "struct.pack('>I8', math.max(0, tonumber(rank))) .. member",
        "''",
    ),
    at(
        "jobs of one rank wait for each other",
        PARKING,
        "math.max(0, tonumber(rank))) .. member",
        "math.max(0, tonumber(rank))) .. HIGHEST",
    ),
    at(
        "a job that was let in waits for one that came later",
        PARKING,
        "\n      and not redis.call('ZSCORE', limit_jobs, "
        "let_in_entry(limit.id, place, group, member, limit.cost)) then",
        " then",
    ),
    at(
        "a claimed job is still let in",
        LIMITS_LUA,
        "    redis.call('ZREM', limit_jobs, "
        "let_in_entry(limit.id, place, group_of_extras(record), member, limit.cost))\n",
    ),
    at(
        "a dropped job takes a slot",
        EXCHANGE,
        "if claim.is_limited and claim.waits_for then",
        "if false then",
    ),
    at(
        "a job that is to be dropped waits",
        PARKING,
        "return drops or not entry.waits_for",
        "return not entry.waits_for",
    ),
    at(
        "a worker claims more jobs with limits than it asks for",
        EXCHANGE,
        "entry.flow and fair_left <= 0 or limited and limited_left <= 0",
        "entry.flow and fair_left <= 0",
    ),
    at(
        "a recovered job is parked again and again",
        EXCHANGE,
        "        if entry == recovered_job then recovered_job = next_recovered(now, request) end\n",
    ),
    at(
        "a job that a person claims takes no slot",
        CLAIM_ONE,
        "  store_slots(now, ready, member .. token, read_extras(member))\n",
    ),
    at(
        "a job that a person claims costs nothing",
        CLAIM_ONE,
        "  count_in_limits(now, (limits_of_extras(read_extras(member))))\n",
    ),
    at(
        "a job takes a slot twice",
        TAKE,
        "if redis.call('ZSCORE', limit_jobs, SLOT .. id .. lease) then return {'HELD'} end\n",
    ),
    at(
        "a job takes a slot of a limit that is closed",
        TAKE,
        "if opens > now then return",
        "if opens > now + 1e6 then return",
    ),
    at(
        "a slot that a running job takes outlives it",
        TAKE,
        "  redis.call('HSET', claim_limits, job_id, held .. pack_limit(limit))\n",
    ),
    at(
        "a job whose lease has ended takes a slot",
        TAKE,
        "if not length and not redis.call('ZSCORE', leases, lease) then return {'LOST'} end\n",
    ),
    at(
        "a forgotten rule still applies",
        "store/lua/set_limits.lua",
        "if not known[stored[i]] then redis.call('HDEL', limit_rules, stored[i]); changed = 1 end",
        "",
    ),
    at(
        "a job of a paused task is released to the ready ones",
        EXCHANGE,
        "if paused_task ~= '' and opens_at(limit_state(now, paused_task), 1) > now then",
        "if false then",
    ),
]

#: Who waits, and who is let in.
_PARKED = [
    at(
        "the dispatcher does not know that a job was parked",
        EXCHANGE,
        "        schedule_let_in(entry.waits_for, math.min(entry.opens, now + LOOK_AGAIN))\n",
    ),
    at(
        "the dispatcher looks at a limit when it opens, and no sooner",
        EXCHANGE,
        "math.min(entry.opens, now + LOOK_AGAIN)",
        "entry.opens",
    ),
    at(
        "the dispatcher does not know that a job of a paused task was parked",
        EXCHANGE,
        "        schedule_let_in(paused_task, now + LOOK_AGAIN)\n",
    ),
    at("the dispatcher wakes at a part of a microsecond", LIMITS_LUA, "math.ceil(moment)", "moment"),
    at("a parked job costs less than a claimed one", PARKING, "cost_of_limit(limits_of_extras(record), id)", "1"),
    at(
        "a parked job does not count for its tenant",
        PARKING,
        "  if record then add_tenant_job(parked, member, rank) end\n",
    ),
    at(
        "a job that was let in counts twice for its tenant",
        LET_IN,
        "  if has(member, HAS_EXTRAS) then remove_tenant_job(parked, member, rank) end\n",
    ),
    at("all parked jobs are let in while no worker is free", LET_IN, "  return number, cost\n", "  return 0, 0\n"),
    at(
        "what jobs cost that were let in is not counted",
        LET_IN,
        "cost + struct.unpack('>I2', entry, 42)",
        "cost",
    ),
    at(
        "jobs of a paused tenant are let in",
        LET_IN,
        "elseif is_served(hash, parked.group) then",
        "elseif true then",
    ),
    at(
        "the first tenant has all turns of a limit",
        LET_IN,
        "      if job.group ~= NO_GROUP then groups[hash] = job.group end\n",
    ),
    at(
        "the tenants of a limit wait in one line",
        LIMITS_LUA,
        "weight > 0 and digest or NO_GROUP",
        "weight > 999 and digest or NO_GROUP",
    ),
    at(
        "the turns of a limit stay when no job waits for it",
        LET_IN,
        "  if kept == '' then\n    redis.call('HDEL', limit_turns, id)\n  elseif kept ~= stored then\n",
        "  if kept ~= '' and kept ~= stored then\n",
    ),
    at(
        "a limit is forgotten though jobs wait for it",
        LET_IN,
        "  if first_parked(id, '') then\n    redis.call('ZADD'",
        "  if opens < math.huge then\n    redis.call('ZADD'",
    ),
    at("a limit is looked at though no job waits for it", LET_IN, "    redis.call('ZREM', next_let_in, id)\n"),
    at("a look at a limit is the last one", LET_IN, "math.min(opens, now + again)", "math.min(opens, now + 1e9)"),
    at(
        "a job that waited for its task counts as let in forever",
        LET_IN,
        "has(member, LIMITED) and not is_paused_task(id)",
        "has(member, LIMITED)",
    ),
    at("a resumed task does not wake the dispatcher", "store/lua/resume_task.lua", "schedule_let_in(id, 0)\n"),
    at(
        "a job that was let in is not ready",
        LET_IN,
        "  put_ready(now, ready, KEYS[base + 3], {tonumber(rank), member})\n",
    ),
]

LIMITS = [*_ENDS, *_CLAIMS, *_PARKED]
