-- Frees locks, each if its token holds it, and tells the waiters; or keeps one
-- for what is left of its min hold, under a value that is no token any more, so
-- that no late renewal or attempt prolongs it.
--
-- Per lock i, from 0:
-- KEYS[2i+1]  the lock
-- KEYS[2i+2]  its companion hash, as acquire.lua tells; it stays as it is, since
--             its token is not the value of any lock to come
-- ARGV[3i+1]  token
-- ARGV[3i+2]  channel of releases
-- ARGV[3i+3]  min hold in ms, counted from the grant; 0 for none
--
-- Returns per lock:
--    2  kept
--    1  released
--    0  gone: there is no such key
--   -1  taken: another token, or a key of another type; left alone
-- or the error that this lock has met. For a single lock it is the script's own,
-- in a list for several.

local call = redis.pcall

-- keep returns 2, an error, or nil if nothing is left of the min hold.
local function keep(lock, companion, held, kept, min)
  if held == kept then
    return 2
  end
  local data = call('HMGET', companion, 'token', 'since')
  local now = redis.call('TIME')
  local left = min
  if data[1] == held and data[2] then
    left = tonumber(data[2]) + min - (tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000))
  end
  left = math.min(left, min) -- the clock may have been set back
  if left < 1 then
    return nil
  end
  local set = call('SET', lock, kept, 'PX', string.format('%.0f', left))
  if set.err then
    return set
  end
  if data[1] == held then
    call('HSET', companion, 'token', kept)
  end
  return 2
end

-- other returns the reply for what is not simply released, nil where it is to be
-- freed all the same.
local function other(lock, companion, held, token, min)
  if type(held) == 'table' then
    return string.sub(held.err, 1, 9) == 'WRONGTYPE' and -1 or held
  end
  if not held then
    return 0
  end
  local kept = 'kept:' .. token
  if held ~= token and held ~= kept then
    return -1
  end
  if min ~= '0' then
    return keep(lock, companion, held, kept, tonumber(min))
  end
end

local silent -- the channel on which nobody has heard the last message
local replies = {}
for i = 0, #KEYS / 2 - 1 do
  local lock, at = KEYS[2 * i + 1], 3 * i
  local token, channel, min = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local held = call('GET', lock)
  local reply
  if held ~= token or min ~= '0' then
    reply = other(lock, KEYS[2 * i + 2], held, token, min)
  end
  if not reply then
    reply = call('DEL', lock)
    if channel ~= silent and call('PUBLISH', channel, lock) == 0 then
      silent = channel
    end
  end
  replies[i + 1] = reply
end
return #KEYS == 2 and replies[1] or replies
