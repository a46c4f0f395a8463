-- Frees a lock whoever holds it, tells the waiters, and tells who held it.
--
-- KEYS[1]  the lock
-- KEYS[2]  its companion; it stays as it is, as release.lua tells
-- ARGV[1]  channel of releases
--
-- Returns what holder.lua says of the lock before; a key that is no string is
-- left alone.

local reply = holder(KEYS[1], KEYS[2])
if reply[1] == 1 then
  redis.call('DEL', KEYS[1])
  redis.pcall('PUBLISH', ARGV[1], KEYS[1])
end
return reply
