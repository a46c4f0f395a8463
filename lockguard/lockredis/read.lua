-- Tells who holds a lock.
--
-- KEYS[1]  the lock
-- KEYS[2]  its companion hash
--
-- Returns {code, …}:
--   { 0}                                              free
--   { 1, pttl, task, instance, since, fence, base, kept}  held; known holder;
--                                                     kept is 1 after its release
--   { 1, pttl}                                        held by a holder without data
--   {-1, type}                                        the key is no string

local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then
  if string.sub(held.err, 1, 9) == 'WRONGTYPE' then
    return {-1, redis.call('TYPE', KEYS[1]).ok}
  end
  return held
end
if not held then
  return {0}
end
local pttl = redis.call('PTTL', KEYS[1])
local data = redis.call('HMGET', KEYS[2], 'token', 'task', 'instance', 'since', 'fence', 'base')
if data[1] == held then
  local kept = string.sub(held, 1, 5) == 'kept:' and 1 or 0
  return {1, pttl, data[2], data[3], data[4], data[5], data[6], kept}
end
return {1, pttl}
