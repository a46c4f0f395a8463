-- Tells who holds a lock.
--
-- KEYS[1]  the lock
-- KEYS[2]  its companion
--
-- Returns what holder.lua says.

return holder(KEYS[1], KEYS[2])
