-- Takes a lock, or tells who holds it.
--
-- KEYS[1]  the lock: a plain string key whose value is the token, nothing else,
--          or "kept:" and the token after a release that min hold has put off
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
--   { 0, pttl, task, instance, since, fence, base, kept}  busy; known holder;
--                                                     kept is 1 after its release
--   { 0, pttl}                                        busy; a holder without data
--   {-1, type}                                        the key is no string
--
-- Never run with allow-oom: a full server must refuse a claim.

local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then
  if string.sub(held.err, 1, 9) == 'WRONGTYPE' then
    return {-1, redis.call('TYPE', KEYS[1]).ok}
  end
  return held
end

local data = redis.call('HMGET', KEYS[2], 'token', 'task', 'instance', 'since', 'fence', 'base')

if held and held ~= ARGV[1] then
  local pttl = redis.call('PTTL', KEYS[1])
  if data[1] == held then
    local kept = string.sub(held, 1, 5) == 'kept:' and 1 or 0
    return {0, pttl, data[2], data[3], data[4], data[5], data[6], kept}
  end
  return {0, pttl}
end

if held and data[1] == held then
  -- The first answer was lost: the same grant, its full TTL again.
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {1, data[5], data[6]}
end

-- A fence of time survives a flush, an eviction and a failover that lost the
-- last one; last + 1 survives a clock that is set back. Microseconds since 1970
-- are below 2^53, so the arithmetic is exact; tostring would write 1.8e+15.
local now = redis.call('TIME')
local fence = tonumber(now[1]) * 1000000 + tonumber(now[2])
local last = tonumber(data[5] or '0') or 0
if last >= fence then
  fence = last + 1
end
local text = string.format('%.0f', fence)
local since = string.format('%.0f', tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000))

redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('HSET', KEYS[2], 'token', ARGV[1], 'task', ARGV[4], 'instance', ARGV[5],
  'since', since, 'fence', text, 'base', ARGV[6])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {1, text, ARGV[6]}
