-- unlock frees a lock if its token holds it, and tells the waiters; it stands
-- before the scripts that do so. It returns
--    1  released, also where it was kept for a min hold
--    0  gone: there is no such key
--   -1  taken: another token, or a key of another type; left alone
-- or the error that this lock has met.

local silent -- the channel on which nobody has heard the last message

local function unlock(lock, token, channel)
  local held = redis.pcall('GET', lock)
  if held == token or held == 'kept:' .. token then
    local gone = redis.pcall('DEL', lock)
    if channel ~= silent and redis.pcall('PUBLISH', channel, lock) == 0 then
      silent = channel
    end
    return gone
  end
  if not held then
    return 0
  end
  if type(held) == 'string' or string.sub(held.err, 1, 9) == 'WRONGTYPE' then
    return -1
  end
  return held
end
