-- Reads a record and changes nothing.
--
-- KEYS[1]  the record
-- KEYS[2]  its result
-- ARGV[1]  1 to read the result too, 0 for a list
--
-- Returns {code, now ms, time to live ms, result or false, field, value, ...};
-- code is found | listed | absent.

local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local all = redis.call('HGETALL', KEYS[1])
local big = false
if ARGV[1] == '1' and redis.call('HGET', KEYS[1], 'rk') == 'big' then
  big = redis.call('GET', KEYS[2])
end
local reply = {ARGV[1] == '1' and 'found' or 'listed', now, redis.call('PTTL', KEYS[1]), big}
if #all == 0 then
  reply[1] = 'absent'
end
for i = 1, #all do
  reply[#reply + 1] = all[i]
end
return reply
