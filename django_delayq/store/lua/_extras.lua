-- Extras: the records in `job_extras`, and the unique keys that jobs hold by them. A part of the prelude.

-- The only reader of extras records: returns the digest of the job's unique key, nil if it has none; whether the job holds
-- that key only until its start; and if its calls are debounced, when the first of them came (µs; 0 = none did since its
-- start). A damaged record has no key. ExtrasRecord of store/records.py has the layout.
local function key_of_extras(record)
  local flags = record and string.byte(record) or 0
  if flags % 2 == 0 or #record < 17 then return end
  local first_call = math.floor(flags / 4) % 2 == 1 and #record >= 25 and struct.unpack('>I8', record, 18) or nil
  return string.sub(record, 2, 17), math.floor(flags / 2) % 2 == 1, first_call
end

-- The digest of the key whose further calls the job throttles; nothing for other jobs. A throttled key is never held.
local function throttle_of_extras(record)
  if not record or #record < 17 or math.floor(string.byte(record) / 8) % 2 == 0 then return end
  return string.sub(record, 2, 17)
end

-- The digest of the name of the job's tenant, and its weight in a fair queue (0 = none); nothing without a tenant.
local function tenant_of_extras(record)
  if not record or #record < 10 or math.floor(string.byte(record) / 16) % 2 == 0 then return end
  return string.sub(record, -8), string.byte(record, -9)
end

-- `record` is that of a debounced job.
local function with_first_call(record, time)
  return string.sub(record, 1, 17) .. struct.pack('>I8', time) .. string.sub(record, 26)
end

-- The digest of the key that a waiting job holds only until its start, its extras record, and the first call; or nil.
local function key_until_start(member)
  local record = has(member, HAS_EXTRAS) and redis.call('HGET', job_extras, string.sub(member, 1, 12))
  local key, until_start, first_call = key_of_extras(record)
  if until_start then return key, record, first_call end
end

-- After a claim: a job that holds its key only until its start gives it up. A later call is the first one again.
local function give_up_key(member)
  local key, record, first_call = key_until_start(member)
  if not key then return end
  if redis.call('HGET', unique_keys, key) == member then redis.call('HDEL', unique_keys, key) end
  if first_call then redis.call('HSET', job_extras, string.sub(member, 1, 12), with_first_call(record, 0)) end
end

-- The member of the job that holds a key; '' if none does. A running job holds none that it had only until its start: a
-- worker of an earlier release does not give it up.
local function holder_of(key)
  local holder = redis.call('HGET', unique_keys, key)
  if not holder then return '' end
  local is_running = redis.call('HEXISTS', claim_records, string.sub(holder, 1, 12)) == 1
  return is_running and key_until_start(holder) and '' or holder
end

-- After a claimed job waits again: it takes the key that it gave up, unless another job holds it now.
local function take_key_again(member)
  local key = key_until_start(member)
  if key and redis.call('HEXISTS', unique_keys, key) == 0 then redis.call('HSET', unique_keys, key, member) end
end

-- The extras record of a job goes with its body, and its unique key too, so that none needs an expiry. Returns the record.
local function delete_extras(member)
  if not has(member, HAS_EXTRAS) then return '' end
  local id = string.sub(member, 1, 12)
  local extra = redis.call('HGET', job_extras, id) or ''
  local key = key_of_extras(extra)
  if key and redis.call('HGET', unique_keys, key) == member then redis.call('HDEL', unique_keys, key) end
  redis.call('HDEL', job_extras, id)
  return extra
end
