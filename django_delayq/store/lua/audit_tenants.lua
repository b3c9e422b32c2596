-- Audit_tenants: what is stored of tenants is compared with the jobs, and repaired if no script could have left it so.
-- KEYS: records, jobs, job_extras, tenant_jobs, turns, tenants; `records` is one of the last three; then scheduled,
--   ready, notify, recovered and parked of each queue that the bodies of the jobs name.
-- ARGV: now, noun of the records, 1 = repair, then per record (≤ 500): its entry or field, the member that the head of
--   the job's body makes, the number of its queue (0 = no body, an unreadable one, or a record of no job).
-- Returns: per record a word. OK: correct. MALFORMED, and MISSING (nothing that waits agrees with it) are deleted.
--   NO_TURN: a flow with jobs that nobody would serve gets a turn.
-- Cost: O(log n) a record.
local now, noun, repair = now_us(ARGV[1]), ARGV[2], ARGV[3] == '1'

-- The flow of an entry of `tenant_jobs` that has a turn, of `turns`, or of `tenants`; nothing if it is of none.
local flow_in = {
  ['tenant_jobs'] = function(entry) return string.sub(entry, 1, 1) == TURN and string.sub(entry, 2, 16) end,
  ['turns'] = flow_of_turn,
  ['tenants'] = function(field) return #field == 15 and field end,
}

local function is_served(flow)
  local state, tag = read_flow(flow)
  if state == ACTIVE and redis.call('ZSCORE', turns, turn_entry(state, flow, tag)) then return true end
  return redis.call('HEXISTS', tenants, string.sub(flow, 1, 14)) == 1
end

local judge = {}
function judge.tenant_jobs(entry, member, queue)
  local is_ready_job = string.sub(entry, 1, 1) ~= NOT_READY
  if #entry ~= (is_ready_job and 36 or 29) then return 'MALFORMED' end
  local id = string.sub(entry, is_ready_job and 23 or 16, is_ready_job and 34 or 27)
  if queue == 0 then return redis.call('HEXISTS', jobs, id) == 1 and 'OK' or 'MISSING' end
  local base = FIXED + 5 * (queue - 1)
  local place, score = waiting_place(member, KEYS[base + 1], KEYS[base + 2], KEYS[base + 4], KEYS[base + 5])
  local tenant, weight = tenant_of(member, place or '')
  local is_own = place and tenant and job_entry(place, member, score, tenant, weight) == entry
  if not is_own and not (place and is_ready(place) and late_entry(place, member, score, tenant) == entry) then
    return 'MISSING'
  end
  local flow = flow_in.tenant_jobs(entry)
  return (not flow or is_served(flow)) and 'OK' or 'NO_TURN'
end
function judge.turns(entry)
  if #entry ~= 23 then return 'MALFORMED' end
  local flow = flow_in.turns(entry)
  local state, tag = read_flow(flow)
  if not state or turn_entry(state, flow, tag) ~= entry then return 'MISSING' end
  return (state == IDLE or jobs_of_flow(flow, 0, 1)[1]) and 'OK' or 'MISSING'
end
function judge.tenants(field, member, queue, value)
  if #field == 14 or (#field == 7 and #value == 7) then return 'OK' end
  if #field ~= 15 or #value ~= 8 then return 'MALFORMED' end
  local state, tag = read_flow(field)
  return redis.call('ZSCORE', turns, turn_entry(state, field, tag)) and 'OK' or 'MISSING'
end

-- Freeing first (see the prelude).
if repair then redis.call('ZREM', tenant_jobs, '') end
local words = {}
for at = 4, #ARGV, 3 do
  local entry = ARGV[at]
  local value
  if noun == 'tenants' then value = redis.call('HGET', records, entry) else value = redis.call('ZSCORE', records, entry) end
  local word = value and judge[noun](entry, ARGV[at + 1], tonumber(ARGV[at + 2]), value) or 'OK'
  if repair and word ~= 'OK' then
    local flow = flow_in[noun](entry)
    if word ~= 'NO_TURN' then
      if noun == 'tenants' then redis.call('HDEL', records, entry) else redis.call('ZREM', records, entry) end
    end
    if flow and #flow == 15 then
      if jobs_of_flow(flow, 0, 1)[1] then begin_turns(flow) else end_turns_if_empty(flow) end
    end
  end
  words[#words + 1] = word
end
return words
