-- Frees a lock if the token holds it, and tells the waiters.
--
-- KEYS[1]  the lock
-- KEYS[2]  its companion hash; the fence stays in it, and what counts only
--          beside its token
-- ARGV[1]  token
-- ARGV[2]  channel of releases
--
-- Returns a code:
--    1  released
--    0  gone: there is no such key
--   -1  taken: another token, or a key of another type; left alone

local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then
  if string.sub(held.err, 1, 9) == 'WRONGTYPE' then
    return -1
  end
  return held
end
if not held then
  return 0
end
if held ~= ARGV[1] then
  return -1
end
redis.call('DEL', KEYS[1])
redis.pcall('HDEL', KEYS[2], 'token')
redis.pcall('PUBLISH', ARGV[2], KEYS[1])
return 1
