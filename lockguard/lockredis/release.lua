-- Frees locks, each if its token holds it, and tells the waiters.
--
-- Per lock i, from 1:
-- KEYS[i]     the lock
-- ARGV[2i-1]  token
-- ARGV[2i]    channel of releases
--
-- The companion, as acquire.lua tells, stays as it is: its token is not the value
-- of any lock to come.
--
-- Returns per lock what unlock says. For a single lock it is the script's own, in
-- a list for several.

local replies = {}
for i = 1, #KEYS do
  replies[i] = unlock(KEYS[i], ARGV[2 * i - 1], ARGV[2 * i])
end
return #KEYS == 1 and replies[1] or replies
