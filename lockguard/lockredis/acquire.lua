-- Takes locks, each by itself, or tells who holds them.
--
-- Per lock i, from 0:
-- KEYS[2i+1]  the lock: a plain string key whose value is the token, nothing else,
--             or "kept:" and the token after a release that min hold has put off
-- KEYS[2i+2]  its companion hash: token, task, instance, since, fence, base of the
--             last grant; they tell of the holder while token is the lock's value
-- ARGV[6i+1]  token
-- ARGV[6i+2]  TTL in ms, at least 1000
-- ARGV[6i+3]  life of the companion in ms, or "" for the usual one
-- ARGV[6i+4]  task id, may be empty
-- ARGV[6i+5]  instance id, may be empty
-- ARGV[6i+6]  number that the caller adds to the fence
--
-- Returns per lock:
--   the fence, a text                                 granted, or ours already
--   { 0, pttl, task, instance, since, fence, base, kept}  busy; known holder;
--                                                     kept is 1 after its release
--   { 0, pttl}                                        busy; a holder without data
--   {-1, type}                                        the key is no string
-- or the error that this lock has met. For a single lock it is the script's own,
-- in a list for several.
--
-- Never run with allow-oom: a full server must refuse a claim.

-- An error of one lock is a reply like any other, so nothing is raised; and there
-- is no function, since to make one costs each run.
local call = redis.pcall

-- The usual life is 25 h. It is set by the first grant of each 1,000 s only, and
-- so by up to that much longer than the 24 h that must be.
local usual = 90000000

-- Microseconds since 1970, put together as a text, since to print a number is
-- slow; they have 16 digits until the year 2286.
local now = redis.call('TIME')
local clock = now[1] .. string.sub('00000' .. now[2], -6)
local since = string.sub(clock, 1, 13)
local span = string.sub(clock, 1, 7)

local replies = {}
for i = 0, #KEYS / 2 - 1 do
  local lock, companion, at = KEYS[2 * i + 1], KEYS[2 * i + 2], 6 * i
  local token, ttl = ARGV[at + 1], ARGV[at + 2]
  local reply
  -- The companion is read first: should it be of another type, nothing is taken.
  local last = call('HGET', companion, 'fence')
  local taken = type(last) == 'table' and last or call('SET', lock, token, 'PX', ttl, 'NX')

  if not taken then
    local held = call('GET', lock)
    if type(held) == 'table' then
      reply = string.sub(held.err, 1, 9) == 'WRONGTYPE' and {-1, call('TYPE', lock).ok} or held
    else
      local data = call('HMGET', companion, 'token', 'task', 'instance', 'since', 'fence', 'base')
      if held == token then
        -- The first answer was lost: the same grant, its full TTL again.
        call('PEXPIRE', lock, ttl)
        reply = data[1] == held and data[5]
      elseif data[1] == held then
        local kept = string.sub(held, 1, 5) == 'kept:' and 1 or 0
        reply = {0, call('PTTL', lock), data[2], data[3], data[4], data[5], data[6], kept}
      else
        reply = {0, call('PTTL', lock)}
      end
    end
  elseif taken.err then
    reply = taken
  end

  if not reply then -- granted
    -- A fence of time survives a flush, an eviction and a failover that lost the
    -- last one; last + 1 survives a clock that is set back. Numbers below 2^53
    -- are exact; they are printed with %.0f, since tostring would write 1.8e+15.
    reply = clock
    if last and (#last ~= #clock or last >= clock) then
      local number = tonumber(last)
      if number and number >= tonumber(clock) then
        reply = string.format('%.0f', number + 1)
      end
    end
    local put = call('HSET', companion, 'fence', reply, 'token', token, 'since', since,
      'task', ARGV[at + 4], 'instance', ARGV[at + 5], 'base', ARGV[at + 6])
    local life = ARGV[at + 3]
    local lasts = life == '' and last and string.sub(last, 1, 7) == span
    if not lasts and type(put) ~= 'table' then
      put = call('PEXPIRE', companion, life == '' and usual or life)
    end
    if type(put) == 'table' then
      reply = put
    end
  end
  replies[i + 1] = reply
end
return #KEYS == 2 and replies[1] or replies
