"""Planned bugs of tenants and turns that the state machine must catch; see `mutation.py`."""

from tests.stateful.mutations.mutation import CANDIDATES, EXCHANGE, PLACES, PROMOTE, RECLAIM, REPLACE, Mutation

CHOICE, EXTRAS, TURNS = "store/lua/_choice.lua", "store/lua/_extras.lua", "store/lua/_turns.lua"
MOVE = "store/lua/move.lua"

at = Mutation.at

TENANTS = [
    at(
        "a job that leaves its place still counts for its tenant",
        PLACES,
        "  if has(member, HAS_EXTRAS) or is_ready(place) then remove_tenant_job(place, member, score) end\n",
    ),
    at(
        "a promoted job counts twice for its tenant",
        PROMOTE,
        "    if any_tenants and has(member, HAS_EXTRAS) then remove_tenant_job(scheduled, member, found[2 * i]) end\n",
    ),
    at(
        "a claimed job without a turn still counts for its tenant",
        EXCHANGE,
        "      if has_tenants and not claim.flow then remove_tenant_job(claim.place, claim.member, claim.rank) end\n",
    ),
    at(
        "a claimed job with a turn still counts for its tenant",
        CHOICE,
        "  redis.call('ZREM', tenant_jobs, unpack(entries))\n",
    ),
    at("a scheduled job does not count for its tenant", PLACES, "  add_tenant_jobs(scheduled, entries)\n"),
    at("a ready job does not count for its tenant", PLACES, "  add_tenant_jobs(ready, entries)\n"),
    at(
        "a tenant may have one job too many",
        TURNS,
        "  if count.stored + count.added < most then\n",
        "  if count.stored + count.added <= most then\n",
    ),
    at(
        "the other jobs of a batch do not count for a tenant",
        TURNS,
        "  count.added = count.added + 1\n",
    ),
    at(
        "a refusal names one job of each tenant",
        TURNS,
        "  table.insert(count.refused, number)\n",
        "  count.refused[1] = number\n",
    ),
    at(
        "scheduled jobs do not count for a tenant's limit",
        TURNS,
        "{TURN, NO_TURN, NOT_READY}) do\n    count = ",
        "{TURN, NO_TURN}) do\n    count = ",
    ),
    at(
        "a replacing job passes a tenant's limit",
        REPLACE,
        "if waiting[1] then return tenant_full(waiting) end\n",
    ),
    at(
        "a job that replaces one of another queue passes a tenant's limit",
        REPLACE,
        "word == 'NEW' or word == 'REPLACED' and holder_base ~= base",
        "word == 'NEW'",
    ),
    at(
        "a flow without jobs keeps its turn",
        TURNS,
        "  if state == ACTIVE and not jobs_of_flow(flow, 0, 1)[1] then end_turns(flow, tag) end\n",
    ),
    at(
        "the service of a job costs nothing",
        CHOICE,
        "    tags[flow] = tags[flow] + cost_of(string.byte(claim.entry, 36))\n",
    ),
    at("a weight is no share", TURNS, "math.floor(SERVICE / math.max(1, weight) + 0.5)", "SERVICE"),
    at(
        "virtual time stands still",
        CHOICE,
        "math.max(times[clock] or virtual_time(flow), tags[flow])",
        "virtual_time(flow)",
    ),
    at(
        "a new flow begins before all others",
        TURNS,
        "put_turn(ACTIVE, flow, math.max(virtual_time(flow), tag or 0))",
        "put_turn(ACTIVE, flow, tag or 0)",
    ),
    at(
        "a tenant forgets what it was served when it has no jobs",
        TURNS,
        "if tag > virtual_time(flow) then put_turn(IDLE, flow, tag) else remove_turn(flow) end",
        "remove_turn(flow)",
    ),
    at(
        "a served tenant forgets it when it has no jobs",
        CHOICE,
        "if is_active or tag > times[clock_of(flow)] then",
        "if is_active then",
    ),
    at(
        "a released job costs its tenant a turn",
        EXCHANGE,
        "      if retry.rank and retry.has_paid then refund_turn(KEYS[base + 2], member) end\n",
    ),
    at(
        "a released job that paid no turn gives one back",
        EXCHANGE,
        "      if retry.rank and retry.has_paid then",
        "      if retry.rank then",
    ),
    at("a reclaimed job costs its tenant a turn", RECLAIM, "        if has_paid then refund_turn(place, member) end\n"),
    at("a reclaimed job that paid no turn gives one back", RECLAIM, "        if has_paid then", "        if true then"),
    at(
        "a job that is set aside gives a turn back",
        TURNS,
        "  if not is_ready(ready) then return end\n  local tenant",
        "  local tenant",
    ),
    at(
        "a flow whose jobs were set aside keeps its turn",
        EXCHANGE,
        "charge(with_turn, is_sure)",
        "charge(with_turn, true)",
    ),
    at(
        "tags of idle flows stay",
        CHOICE,
        "    drop_idle(clock, clock .. struct.pack('>I7', time) .. HIGHEST, DROPPED + 2 * #claims)\n",
    ),
    at("tags of a queue without jobs stay", CANDIDATES, "      drop_all_idle(place)\n"),
    at(
        "a paused tenant is served when its next job comes",
        TURNS,
        "  if redis.call('HEXISTS', tenants, string.sub(flow, 1, 14)) == 1 then return end\n",
    ),
    at(
        "a paused tenant is served on",
        "store/lua/pause_tenant.lua",
        "  if state == ACTIVE then end_turns(flow, tag) end\n",
    ),
    at(
        "a resumed tenant is not served",
        "store/lua/resume_tenant.lua",
        "for _, flow in ipairs(flows_of(tenant)) do begin_turns(flow) end\n",
    ),
    at(
        "a paused tenant's recovered job is served",
        CANDIDATES,
        "    if is_fair(request, queue) then head = first_unpaused(now, place, head) end\n",
    ),
    at("a moved job keeps the weight of its old queue", MOVE, "string.char(weight)", "string.sub(extra, -9, -9)"),
    at(
        "a job without a tenant has one in a queue that is not fair",
        TURNS,
        "  if not digest or weight == 0 and digest == NO_TENANT then return end\n",
        "  if not digest then return end\n",
    ),
    at(
        "a job without a turn is never served",
        CANDIDATES,
        "      give_turns(now, place)\n",
    ),
    at(
        "a fair queue serves its jobs by their ranks",
        CANDIDATES,
        "    elseif source.by_turns then",
        "    elseif false then",
    ),
    at(
        "a fair queue passes queues whose jobs are older",
        CANDIDATES,
        "math.max(last_rank, ranks[i] or job.rank)",
        "0",
    ),
    at(
        "a priority is no rank among tenants",
        CHOICE,
        "flows[at].priority < back.priority\n"
        "        or flows[at].priority == back.priority and flows[at].tag <= back.tag",
        "flows[at].tag <= back.tag",
    ),
    at(
        "the first call of a series loses the tenant",
        EXTRAS,
        ".. struct.pack('>I8', time) .. string.sub(record, 26)",
        ".. struct.pack('>I8', time)",
    ),
]
