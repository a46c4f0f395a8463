-- Tells who holds a lock; stands before the scripts that do so.
--
-- holder(lock, companion), of KEYS[1] and KEYS[2] in both, returns {code, …}:
--   { 0}                   free
--   { 1, pttl, companion}  held; known holder
--   { 1, pttl}             held by a holder without data
--   {-1, type}             the key is no string
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
  local told = redis.call('GET', companion)
  if told and string.match(told, '^%S+ %S+ (%S+)') == held then
    return {1, pttl, told}
  end
  return {1, pttl}
end
