-- Frees locks, each if its token holds it, and tells the waiters.
--
-- Per lock i, from 0:
-- KEYS[2i+1]  the lock
-- KEYS[2i+2]  its companion hash; the fence stays in it
-- ARGV[2i+1]  token
-- ARGV[2i+2]  channel of releases
--
-- Returns one code per lock, or the error that this lock has met:
--    1  released
--    0  gone: there is no such key
--   -1  taken: another token, or a key of another type; left alone

local function release(lock, companion, token, channel)
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
  if held ~= token then
    return -1
  end
  local gone = redis.pcall('DEL', lock)
  if type(gone) == 'table' then
    return gone
  end
  redis.pcall('HDEL', companion, 'token', 'task', 'instance', 'since')
  redis.pcall('PUBLISH', channel, lock)
  return 1
end

local replies = {}
for i = 0, #KEYS / 2 - 1 do
  replies[i + 1] = release(KEYS[2 * i + 1], KEYS[2 * i + 2], ARGV[2 * i + 1], ARGV[2 * i + 2])
end
return replies
