-- Ends a claim with a result. The lease is not tested: a late completion that
-- nobody has overtaken is accepted.
--
-- KEYS[1]  the record
-- KEYS[2]  its result, where it is above 64 bytes
-- ARGV[1]  owner
-- ARGV[2]  fence
-- ARGV[3]  retention, ms
-- ARGV[4]  kind of the result: none | inline | big | omitted
-- ARGV[5]  the result, for inline and big
-- ARGV[6]  attempt
-- ARGV[7]  task id
-- ARGV[8]  instance
-- ARGV[9]  fingerprint, "" for none
-- ARGV[10] key's namespace
-- ARGV[11] key's text
--
-- Returns {code}:
--   done    completed now, or before by the same claim
--   lost    as done, but the record had vanished and was made anew
--   stale   the record is another's
-- With flag allow-oom: the effect has happened, so a full server must not
-- refuse it. On servers without flags the PEXPIRE or DEL in front has the same
-- effect, since what a script has begun to write is not refused in its middle.

local record, result = KEYS[1], KEYS[2]
local f = redis.call('HMGET', record, 's', 'o', 'f', 'x')
local state = f[1]
if state then
  if f[2] ~= ARGV[1] or tonumber(f[3]) ~= tonumber(ARGV[2]) then
    return {'stale'}
  end
  if state == 'completed' then
    if f[4] then
      return {'lost'}
    end
    return {'done'}
  end
  if state ~= 'in_progress' then
    return {'stale'}
  end
end

local t = redis.call('TIME')
local now = string.format('%.0f', tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000))
if state then
  redis.call('PEXPIRE', record, ARGV[3])
end
redis.call('DEL', result)
if not state then
  redis.call('HSET', record,
    'o', ARGV[1], 'f', ARGV[2], 'a', ARGV[6], 't', ARGV[7], 'i', ARGV[8],
    'kn', ARGV[10], 'kt', ARGV[11], 'c', now, 'x', 1)
  if ARGV[9] ~= '' then
    redis.call('HSET', record, 'p', ARGV[9])
  end
end
redis.call('HSET', record, 's', 'completed', 'd', now, 'rk', ARGV[4])
redis.call('HDEL', record, 'l', 'b', 'r')
if ARGV[4] == 'inline' then
  redis.call('HSET', record, 'r', ARGV[5])
elseif ARGV[4] == 'big' then
  redis.call('SET', result, ARGV[5], 'PX', ARGV[3])
end
redis.call('PEXPIRE', record, ARGV[3])
if state then
  return {'done'}
end
return {'lost'}
