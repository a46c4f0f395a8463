-- Claims a record (absent, released, or in progress with a passed lease).
--
-- KEYS[1]  the record, a hash
-- KEYS[2]  its result, a string, where it is above 64 bytes
-- ARGV[1]  owner of this attempt
-- ARGV[2]  fingerprint, "" compares nothing
-- ARGV[3]  lease, ms
-- ARGV[4]  hold: time to live of a record without an end, ms
-- ARGV[5]  fence of the lock, 0 for none
-- ARGV[6]  task id
-- ARGV[7]  instance
-- ARGV[8]  key's namespace
-- ARGV[9]  key's text
--
-- Returns {code, now ms, time to live ms, result or false, field, value, ...}
-- with the record as it now stands; code is one of
--   run       claimed, or claimed before by the same owner
--   replay    completed
--   busy      in progress, lease not passed
--   backoff   released, back-off not passed
--   failed    failed for good
--   mismatch  another fingerprint
-- Without flags: a full server refuses a new claim, and still answers the rest.

local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local micros = tonumber(t[1]) * 1000000 + tonumber(t[2])
local record, result = KEYS[1], KEYS[2]

local function answer(code)
  local big = false
  if redis.call('HGET', record, 'rk') == 'big' then
    big = redis.call('GET', result)
  end
  local reply = {code, now, redis.call('PTTL', record), big}
  local all = redis.call('HGETALL', record)
  for i = 1, #all do
    reply[#reply + 1] = all[i]
  end
  return reply
end

local f = redis.call('HMGET', record, 's', 'o', 'f', 'a', 'l', 'b', 'p')
local state, owner, fence, attempt = f[1], f[2], tonumber(f[3] or 0), tonumber(f[4] or 0)
local lease, backoff, print = tonumber(f[5] or 0), tonumber(f[6] or 0), f[7] or ''

if state then
  if ARGV[2] ~= '' and print ~= '' and print ~= ARGV[2] then
    return answer('mismatch')
  end
  if state == 'completed' then
    return answer('replay')
  end
  if state == 'failed' then
    return answer('failed')
  end
  if state == 'in_progress' and owner == ARGV[1] then
    redis.call('HSET', record, 'l', string.format('%.0f', now + tonumber(ARGV[3])))
    redis.call('PEXPIRE', record, ARGV[4])
    return answer('run')
  end
  if state == 'in_progress' and lease > now then
    return answer('busy')
  end
  if state == 'released' and backoff > now then
    return answer('backoff')
  end
end

local base = tonumber(ARGV[5])
if base <= 0 then
  base = micros
end
local takeover = 0
if state == 'in_progress' then
  takeover = 1
end
redis.call('HSET', record,
  's', 'in_progress',
  'o', ARGV[1],
  'f', string.format('%.0f', math.max(fence + 1, base)),
  'a', string.format('%.0f', attempt + 1),
  'l', string.format('%.0f', now + tonumber(ARGV[3])),
  't', ARGV[6],
  'i', ARGV[7],
  'k', takeover)
if not state then
  redis.call('HSET', record,
    'kn', ARGV[8],
    'kt', ARGV[9],
    'c', string.format('%.0f', now))
end
if ARGV[2] ~= '' then
  redis.call('HSET', record, 'p', ARGV[2])
end
if state then
  redis.call('HDEL', record, 'b', 'd', 'ec', 'em')
end
redis.call('PEXPIRE', record, ARGV[4])
return answer('run')
