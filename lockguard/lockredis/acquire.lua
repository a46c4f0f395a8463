-- Takes locks, each by itself, or tells who holds them.
--
-- Per lock i, from 0:
-- KEYS[2i+1]  the lock: a plain string key whose value is the token, nothing else,
--             or "kept:" and the token after a release that min hold has put off
-- KEYS[2i+2]  its companion, of the last grant; it tells of the holder while the
--             token in it is the lock's value: fence, since (ms), token, and what
--             follows the token in ARGV, with a blank between each
-- ARGV[4i+1]  token, without blanks
-- ARGV[4i+2]  TTL in ms, at least 1000
-- ARGV[4i+3]  life of the companion in ms
-- ARGV[4i+4]  what else the companion tells, see companion.go
--
-- Returns per lock:
--   the fence, a text      granted, or ours already
--   { 0, pttl, companion}  busy; known holder
--   { 0, pttl}             busy; a holder without data
--   {-1, type}             the key is no string
-- or the error that this lock has met. For a single lock it is the script's own,
-- in a list for several.
--
-- Never run with allow-oom: a full server must refuse a claim.

-- An error of one lock is a reply like any other, so nothing is raised; and there
-- is no function, since to make one costs each run.
local call = redis.pcall

-- Microseconds since 1970, put together as a text, since to print a number is
-- slow; they have 16 digits until the year 2286.
local now = redis.call('TIME')
local clock = now[1] .. string.sub('00000' .. now[2], -6)
local since = string.sub(clock, 1, 13)

local replies = {}
for i = 0, #KEYS / 2 - 1 do
  local lock, companion, at = KEYS[2 * i + 1], KEYS[2 * i + 2], 4 * i
  local token, ttl = ARGV[at + 1], ARGV[at + 2]
  local reply
  local taken = call('SET', lock, token, 'PX', ttl, 'NX')

  if not taken then
    local held = call('GET', lock)
    if type(held) == 'table' then
      reply = string.sub(held.err, 1, 9) == 'WRONGTYPE' and {-1, call('TYPE', lock).ok} or held
    else
      local told = call('GET', companion)
      local fence, whose
      if type(told) == 'string' then
        fence, whose = string.match(told, '^(%d+) %d+ (%S+)')
      end
      if held == token then
        -- The first answer was lost: the same grant, its full TTL again.
        call('PEXPIRE', lock, ttl)
        reply = whose == held and fence
      elseif whose == held then
        reply = {0, call('PTTL', lock), told}
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
    local life, tell = ARGV[at + 3], ' ' .. since .. ' ' .. token .. ' ' .. ARGV[at + 4]
    local last = call('SET', companion, clock .. tell, 'PX', life, 'GET')
    if type(last) == 'table' then
      call('DEL', lock) -- the companion is of another type: nothing is taken
      reply = last
    elseif last and (string.sub(last, 17, 17) ~= ' ' or string.sub(last, 1, 16) >= clock) then
      local number = tonumber(string.match(last, '^%d+'))
      if number and number >= tonumber(clock) then
        reply = string.format('%.0f', number + 1)
        call('SET', companion, reply .. tell, 'PX', life)
      end
    end
  end
  replies[i + 1] = reply
end
return #KEYS == 2 and replies[1] or replies
