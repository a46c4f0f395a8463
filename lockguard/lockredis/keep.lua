-- Keeps a lock for what is left of its min hold, under a value that is no token
-- any more, so that no late renewal or attempt prolongs it; or releases it where
-- nothing is left.
--
-- KEYS[1]  the lock
-- KEYS[2]  its companion, as acquire.lua tells
-- ARGV[1]  token
-- ARGV[2]  min hold in ms, counted from the grant
-- ARGV[3]  channel of releases
--
-- Returns
--    2  kept
--    1  released
--    0  gone: there is no such key
--   -1  taken: another token, or a key of another type; left alone

local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' then
  return string.sub(held.err, 1, 9) == 'WRONGTYPE' and -1 or held
end
if not held then
  return 0
end
local kept = 'kept:' .. ARGV[1]
if held == kept then
  return 2
end
if held ~= ARGV[1] then
  return -1
end
local told = redis.pcall('GET', KEYS[2])
local fence, since, rest
if type(told) == 'string' then
  local whose
  fence, since, whose, rest = string.match(told, '^(%d+) (%d+) (%S+)(.*)$')
  if whose ~= held then
    since = nil
  end
end
local now = redis.call('TIME')
local min = tonumber(ARGV[2])
local left = min
if since then
  left = tonumber(since) + min - (tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000))
end
left = math.min(left, min) -- the clock may have been set back
if left < 1 then
  redis.call('DEL', KEYS[1])
  redis.pcall('PUBLISH', ARGV[3], KEYS[1])
  return 1
end
redis.call('SET', KEYS[1], kept, 'PX', string.format('%.0f', left))
if since then
  redis.pcall('SET', KEYS[2], fence .. ' ' .. since .. ' ' .. kept .. rest, 'KEEPTTL')
end
return 2
