-- Starts the lease of a record anew.
--
-- KEYS[1]  the record
-- ARGV[1]  owner
-- ARGV[2]  fence
-- ARGV[3]  lease, ms
-- ARGV[4]  hold, ms
--
-- Returns {code}: renewed | stale | absent.
-- With flag allow-oom: it replaces a number by one of the same length. On
-- servers without flags the PEXPIRE in front has the same effect, since what a
-- script has begun to write is not refused in its middle.

local f = redis.call('HMGET', KEYS[1], 's', 'o', 'f')
if not f[1] then
  return {'absent'}
end
if f[1] ~= 'in_progress' or f[2] ~= ARGV[1] or tonumber(f[3]) ~= tonumber(ARGV[2]) then
  return {'stale'}
end
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('HSET', KEYS[1], 'l', string.format('%.0f', now + tonumber(ARGV[3])))
return {'renewed'}
