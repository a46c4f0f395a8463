-- Frees locks, each if its token holds it, and tells the waiters; or keeps one
-- for what is left of its min hold, under a value that is no token any more, so
-- that no late renewal or attempt prolongs it.
--
-- Per lock i, from 0:
-- KEYS[2i+1]  the lock
-- KEYS[2i+2]  its companion hash; the fence stays in it
-- ARGV[3i+1]  token
-- ARGV[3i+2]  channel of releases
-- ARGV[3i+3]  min hold in ms, counted from the grant; 0 for none
--
-- Returns one code per lock, or the error that this lock has met:
--    2  kept
--    1  released
--    0  gone: there is no such key
--   -1  taken: another token, or a key of another type; left alone

-- keep returns whether something is left of the min hold.
local function keep(lock, companion, held, kept, min)
  if held == kept then
    return true
  end
  local data = redis.call('HMGET', companion, 'token', 'since')
  local now = redis.call('TIME')
  local left = min
  if data[1] == held and data[2] then
    left = tonumber(data[2]) + min - (tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000))
  end
  left = math.min(left, min) -- the clock may have been set back
  if left < 1 then
    return false
  end
  redis.call('SET', lock, kept, 'PX', string.format('%.0f', left))
  if data[1] == held then
    redis.pcall('HSET', companion, 'token', kept)
  end
  return true
end

local function release(lock, companion, token, channel, min)
  local held = redis.pcall('GET', lock)
  if type(held) == 'table' then
    if string.sub(held.err, 1, 9) == 'WRONGTYPE' then
      return -1
    end
    return held
  end
  if not held then
    return 0
  end
  local kept = 'kept:' .. token
  if held ~= token and held ~= kept then
    return -1
  end
  if min ~= '0' and keep(lock, companion, held, kept, tonumber(min)) then
    return 2
  end
  redis.call('DEL', lock)
  redis.pcall('HDEL', companion, 'token', 'task', 'instance', 'since')
  redis.pcall('PUBLISH', channel, lock)
  return 1
end

if #KEYS == 2 then -- as mostly: its error may be that of the script
  return {release(KEYS[1], KEYS[2], unpack(ARGV))}
end
local replies = {}
for i = 0, #KEYS / 2 - 1 do
  local ok, reply = pcall(release, KEYS[2 * i + 1], KEYS[2 * i + 2], unpack(ARGV, 3 * i + 1, 3 * i + 3))
  if not ok then -- a text in Redis 6
    reply = type(reply) == 'table' and reply or {err = tostring(reply)}
  end
  replies[i + 1] = reply
end
return replies
