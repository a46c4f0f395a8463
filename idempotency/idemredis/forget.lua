-- Makes a record claimable again, whatever it was. It is kept, with a larger
-- fence and no owner, so that whoever still runs under it is stale.
--
-- KEYS[1]  the record
-- KEYS[2]  its result
-- ARGV[1]  1 to forget a record that is in progress, else 0
-- ARGV[2]  hold, ms
-- ARGV[3]  the operator's reason
--
-- Returns {code, now ms, time to live ms, result or false, field, value, ...}
-- with the record as it was; code is forgotten | busy | absent.
-- With flag allow-oom: it only drops things.

local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local record, result = KEYS[1], KEYS[2]
local f = redis.call('HMGET', record, 's', 'f', 'rk')

local big = false
if f[3] == 'big' then
  big = redis.call('GET', result)
end
local reply = {'forgotten', now, redis.call('PTTL', record), big}
local all = redis.call('HGETALL', record)
for i = 1, #all do
  reply[#reply + 1] = all[i]
end

if not f[1] then
  reply[1] = 'absent'
  return reply
end
if f[1] == 'in_progress' and ARGV[1] ~= '1' then
  reply[1] = 'busy'
  return reply
end
redis.call('PEXPIRE', record, ARGV[2])
redis.call('DEL', result)
redis.call('HDEL', record, 'o', 'l', 'b', 'p', 'r', 'rk', 'x', 'k')
redis.call('HSET', record,
  's', 'released',
  'f', string.format('%.0f', tonumber(f[2] or 0) + 1),
  'a', 0,
  'd', string.format('%.0f', now),
  'ec', 'Forgotten',
  'em', ARGV[3])
return reply
