-- Frees a lock whoever holds it, tells the waiters, and tells who held it.
--
-- KEYS[1]  the lock
-- KEYS[2]  its companion hash; the fence stays in it
-- ARGV[1]  channel of releases
--
-- Returns {code, …}:
--   { 0}                                              there was none
--   { 1, pttl, task, instance, since, fence, base, kept}  freed; known holder;
--                                                     kept is 1 after its release
--   { 1, pttl}                                        freed; a holder without data
--   {-1, type}                                        the key is no string; left alone

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
redis.call('DEL', KEYS[1])
redis.pcall('HDEL', KEYS[2], 'token', 'task', 'instance', 'since')
redis.pcall('PUBLISH', ARGV[1], KEYS[1])
if data[1] == held then
  local kept = string.sub(held, 1, 5) == 'kept:' and 1 or 0
  return {1, pttl, data[2], data[3], data[4], data[5], data[6], kept}
end
return {1, pttl}
