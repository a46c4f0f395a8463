-- ran: notes in a job's hash how far its runs have come. What it keeps only
-- grows, whatever order the notes arrive in.
--
-- KEYS  1 the job's hash
-- ARGV  1 tick ms ('' none): a run of it has begun, or was settled without
--       2 '1': its run has succeeded just now, else '0'
--       3 task id
-- Returns 1 if a run of the same task id had succeeded before, else 0.
local call = redis.call
local s = call('HMGET', KEYS[1], 'begun', 'success', 'succeeded')

local function raise(field, old, new)
  if new and new > (tonumber(old or '') or 0) then call('HSET', KEYS[1], field, string.format('%.0f', new)) end
end

raise('begun', s[1], tonumber(ARGV[1]))
if ARGV[2] ~= '1' then return 0 end
local t = call('TIME')
raise('success', s[2], tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000))
if s[3] == ARGV[3] then return 1 end
call('HSET', KEYS[1], 'succeeded', ARGV[3])
return 0
