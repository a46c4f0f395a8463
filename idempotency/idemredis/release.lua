-- Gives a record back, or ends it as failed.
--
-- KEYS[1]  the record
-- ARGV[1]  owner
-- ARGV[2]  fence; 0 for a claim whose answer never came, or whose run has not
--          begun: such an attempt is not counted, and its task is forgotten
-- ARGV[3]  the new state: released | failed
-- ARGV[4]  released: back-off before the next claim, ms; failed: 0
-- ARGV[5]  time to live, ms
-- ARGV[6]  error code
-- ARGV[7]  error text
--
-- Returns {code}:
--   done    in the new state now, or before by the same claim
--   stale   the record is another's
--   absent  there is no record
-- With flag allow-oom: see complete.lua.

local record = KEYS[1]
local f = redis.call('HMGET', record, 's', 'o', 'f', 'a')
if not f[1] then
  return {'absent'}
end
local fence = tonumber(ARGV[2])
if f[2] ~= ARGV[1] or (fence ~= 0 and tonumber(f[3]) ~= fence) then
  return {'stale'}
end
if f[1] == ARGV[3] then
  return {'done'}
end
if f[1] ~= 'in_progress' then
  return {'stale'}
end

local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
redis.call('PEXPIRE', record, ARGV[5])
redis.call('HDEL', record, 'l')
redis.call('HSET', record,
  's', ARGV[3],
  'd', string.format('%.0f', now),
  'ec', ARGV[6],
  'em', ARGV[7])
if ARGV[3] == 'released' then
  redis.call('HSET', record, 'b', string.format('%.0f', now + tonumber(ARGV[4])))
end
if fence == 0 then
  redis.call('HSET', record, 'a', string.format('%.0f', tonumber(f[4]) - 1))
  redis.call('HDEL', record, 't')
end
return {'done'}
