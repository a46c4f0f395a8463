-- Tells who holds a lock; stands before the scripts that do so.
--
-- holder(lock, companion), of KEYS[1] and KEYS[2] in both, returns {code, …}:
--   { 0}                                              free
--   { 1, pttl, task, instance, since, fence, base, kept}  held; known holder;
--                                                     kept is 1 after its release
--   { 1, pttl}                                        held by a holder without data
--   {-1, type}                                        the key is no string
-- or the error that GET has met.

local function holder(lock, companion)
  local held = redis.pcall('GET', lock)
  if type(held) == 'table' then
    if string.sub(held.err, 1, 9) == 'WRONGTYPE' then
      return {-1, redis.call('TYPE', lock).ok}
    end
    return held
  end
  if not held then
    return {0}
  end
  local pttl = redis.call('PTTL', lock)
  local data = redis.call('HMGET', companion, 'token', 'task', 'instance', 'since', 'fence', 'base')
  if data[1] == held then
    local kept = string.sub(held, 1, 5) == 'kept:' and 1 or 0
    return {1, pttl, data[2], data[3], data[4], data[5], data[6], kept}
  end
  return {1, pttl}
end
