-- Frees locks, each if its token holds it, and tells the waiters.
--
-- Per lock i, from 1:
-- KEYS[i]     the lock
-- ARGV[2i-1]  token
-- ARGV[2i]    channel of releases
--
-- The companion, as acquire.lua tells, stays as it is: its token is not the
-- value of any lock to come.
--
-- Returns per lock:
--    1  released, also where it was kept for a min hold
--    0  gone: there is no such key
--   -1  taken: another token, or a key of another type; left alone
-- or the error that this lock has met. For a single lock it is the script's own,
-- in a list for several.

local call = redis.pcall
local silent -- the channel on which nobody has heard the last message
local replies = {}
for i = 1, #KEYS do
  local lock, token = KEYS[i], ARGV[2 * i - 1]
  local held = call('GET', lock)
  local reply
  if held == token or held == 'kept:' .. token then
    reply = call('DEL', lock)
    local channel = ARGV[2 * i]
    if channel ~= silent and call('PUBLISH', channel, lock) == 0 then
      silent = channel
    end
  elseif not held then
    reply = 0
  elseif type(held) == 'string' or string.sub(held.err, 1, 9) == 'WRONGTYPE' then
    reply = -1
  else
    reply = held
  end
  replies[i] = reply
end
return #KEYS == 1 and replies[1] or replies
