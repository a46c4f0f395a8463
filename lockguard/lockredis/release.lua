-- Frees a lock if the token holds it, and tells the waiters; or keeps it for what
-- is left of its min hold, under a value that is no token any more, so that no
-- late renewal or attempt prolongs it.
--
-- KEYS[1]  the lock
-- KEYS[2]  its companion hash; the fence stays in it
-- ARGV[1]  token
-- ARGV[2]  channel of releases
-- ARGV[3]  min hold in ms, counted from the grant; 0 for none
--
-- Returns a code:
--    2  kept
--    1  released
--    0  gone: there is no such key
--   -1  taken: another token, or a key of another type; left alone

local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then
  if string.sub(held.err, 1, 9) == 'WRONGTYPE' then
    return -1
  end
  return held
end
if not held then
  return 0
end
local kept = 'kept:' .. ARGV[1]
if held ~= ARGV[1] and held ~= kept then
  return -1
end
local min = tonumber(ARGV[3])
if min > 0 then
  if held == kept then
    return 2
  end
  local data = redis.call('HMGET', KEYS[2], 'token', 'since')
  local now = redis.call('TIME')
  local left = min
  if data[1] == held and data[2] then
    left = tonumber(data[2]) + min - (tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000))
  end
  left = math.min(left, min) -- the clock may have been set back
  if left >= 1 then
    redis.call('SET', KEYS[1], kept, 'PX', string.format('%.0f', left))
    if data[1] == held then
      redis.pcall('HSET', KEYS[2], 'token', kept)
    end
    return 2
  end
end
redis.call('DEL', KEYS[1])
redis.pcall('HDEL', KEYS[2], 'token', 'task', 'instance', 'since')
redis.pcall('PUBLISH', ARGV[2], KEYS[1])
return 1
