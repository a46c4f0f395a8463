-- Takes locks, each by itself, or tells who holds them.
--
-- Per lock i, from 0:
-- KEYS[2i+1]  the lock: a plain string key whose value is the token, nothing else,
--             or "kept:" and the token after a release that min hold has put off
-- KEYS[2i+2]  its companion hash: token, task, instance, since, fence, base
-- ARGV[7i+1]  token
-- ARGV[7i+2]  TTL in ms, at least 1000
-- ARGV[7i+3]  life of the companion in ms
-- ARGV[7i+4]  task id, may be empty
-- ARGV[7i+5]  instance id, may be empty
-- ARGV[7i+6]  number that the caller adds to the fence
-- ARGV[7i+7]  1: the life is that of all, and half an hour longer than it must be
--
-- Returns one reply per lock, {code, …}:
--   { 1, fence, base}                                 granted, or ours already
--   { 0, pttl, task, instance, since, fence, base, kept}  busy; known holder;
--                                                     kept is 1 after its release
--   { 0, pttl}                                        busy; a holder without data
--   {-1, type}                                        the key is no string
-- or the error that this lock has met.
--
-- Never run with allow-oom: a full server must refuse a claim.

local call = redis.call
local now = call('TIME')
local micros = string.rep('0', 6 - #now[2]) .. now[2]
local half_hour = math.floor(now[1] / 1800)

local function acquire(lock, companion, token, ttl, life, task, instance, base, lasting)
  -- The companion is read first: should it be of another type, nothing is taken.
  local last = tonumber(call('HGET', companion, 'fence') or '')

  if not call('SET', lock, token, 'PX', ttl, 'NX') then
    local held = redis.pcall('GET', lock)
    if type(held) == 'table' then
      if string.sub(held.err, 1, 9) == 'WRONGTYPE' then
        return {-1, call('TYPE', lock).ok}
      end
      return held
    end
    local data = call('HMGET', companion, 'token', 'task', 'instance', 'since', 'fence', 'base')
    if held ~= token then
      local pttl = call('PTTL', lock)
      if data[1] == held then
        local kept = string.sub(held, 1, 5) == 'kept:' and 1 or 0
        return {0, pttl, data[2], data[3], data[4], data[5], data[6], kept}
      end
      return {0, pttl}
    end
    -- The first answer was lost: the same grant, its full TTL again.
    call('PEXPIRE', lock, ttl)
    if data[1] == held then
      return {1, data[5], data[6]}
    end
  end

  -- A fence of time survives a flush, an eviction and a failover that lost the
  -- last one; last + 1 survives a clock that is set back. Microseconds since
  -- 1970 are below 2^53, so the arithmetic is exact. The text is put together
  -- from TIME's own, since to print a double is slow; the sum is printed with
  -- %.0f, since tostring would write 1.8e+15.
  local fence = now[1] .. micros
  if last and last >= tonumber(fence) then
    fence = string.format('%.0f', last + 1)
  end
  call('HSET', companion, 'token', token, 'task', task, 'instance', instance,
    'since', now[1] .. string.sub(micros, 1, 3), 'fence', fence, 'base', base)
  -- A life with half an hour to spare is set by the first grant of each one only.
  if lasting ~= '1' or not last or math.floor(last / 1800000000) ~= half_hour then
    call('PEXPIRE', companion, life)
  end
  return {1, fence, base}
end

if #KEYS == 2 then -- as mostly: its error may be that of the script
  return {acquire(KEYS[1], KEYS[2], unpack(ARGV))}
end
local replies = {}
for i = 0, #KEYS / 2 - 1 do
  local ok, reply = pcall(acquire, KEYS[2 * i + 1], KEYS[2 * i + 2], unpack(ARGV, 7 * i + 1, 7 * i + 7))
  if not ok then -- a text in Redis 6
    reply = type(reply) == 'table' and reply or {err = tostring(reply)}
  end
  replies[i + 1] = reply
end
return replies
