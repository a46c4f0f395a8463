-- Takes a lock, or tells who holds it.
--
-- KEYS[1]  the lock: a plain string key whose value is the token, nothing else
-- KEYS[2]  its companion hash: token, task, instance, since, fence, base
-- ARGV[1]  token
-- ARGV[2]  TTL in ms, at least 1000
-- ARGV[3]  life of the companion in ms
-- ARGV[4]  task id, may be empty
-- ARGV[5]  instance id, may be empty
-- ARGV[6]  number that the caller adds to the fence
--
-- Returns {code, …}:
--   { 1, fence, base}                                 granted, or ours already
--   { 0, pttl, task, instance, since, fence, base}    busy; known holder
--   { 0, pttl}                                        busy; a holder without data
--   {-1, type}                                        the key is no string
--
-- Never run with allow-oom: a full server must refuse a claim.

-- The companion is read first: should it be of another type, nothing is taken.
local last = redis.call('HGET', KEYS[2], 'fence')

if not redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') then
  local held = redis.pcall('GET', KEYS[1])
  if type(held) == 'table' then
    if string.sub(held.err, 1, 9) == 'WRONGTYPE' then
      return {-1, redis.call('TYPE', KEYS[1]).ok}
    end
    return held
  end
  local data = redis.call('HMGET', KEYS[2], 'token', 'task', 'instance', 'since', 'fence', 'base')
  if held ~= ARGV[1] then
    local pttl = redis.call('PTTL', KEYS[1])
    if data[1] == held then
      return {0, pttl, data[2], data[3], data[4], data[5], data[6]}
    end
    return {0, pttl}
  end
  -- The first answer was lost: the same grant, its full TTL again.
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  if data[1] == held then
    return {1, data[5], data[6]}
  end
end

-- A fence of time survives a flush, an eviction and a failover that lost the
-- last one; last + 1 survives a clock that is set back. Microseconds since 1970
-- are below 2^53, so the arithmetic is exact. The text is put together from
-- TIME's own, since to print a double is slow; the sum is printed with %.0f,
-- since tostring would write 1.8e+15.
local now = redis.call('TIME')
local micros = string.rep('0', 6 - #now[2]) .. now[2]
local text = now[1] .. micros
local floor = tonumber(last or '0') or 0
if floor >= tonumber(text) then
  text = string.format('%.0f', floor + 1)
end

redis.call('HSET', KEYS[2], 'token', ARGV[1], 'task', ARGV[4], 'instance', ARGV[5],
  'since', now[1] .. string.sub(micros, 1, 3), 'fence', text, 'base', ARGV[6])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {1, text, ARGV[6]}
