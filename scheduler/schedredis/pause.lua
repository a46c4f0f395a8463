-- pause: stops the ticks of one job, or lets them go on.
--
-- KEYS  1 the job's hash      2 the job's history (stream)
-- ARGV  1 pause | resume      2 who      3 reason ('' none)
-- Returns {'UNKNOWN'} if the store has no such job. Else {'OK', changed (0|1),
-- since ms, by, reason} of the pause: the one that is in force, or was until
-- now; '' where there was none.
-- What is paused already keeps its pause. A job that goes on does so from now:
-- ticks up to this moment do not fire.
local call = redis.call
local job, history, op = KEYS[1], KEYS[2], ARGV[1]
local s = call('HMGET', job, 'rev', 'since', 'paused', 'paused_by', 'paused_why')
if not s[1] then return {'UNKNOWN'} end
if (op == 'pause') == (s[3] ~= false) then return {'OK', 0, s[3] or '', s[4] or '', s[5] or ''} end

local t = call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local nows = string.format('%.0f', now)
local from = {nows, ARGV[2], ARGV[3]}
if op == 'pause' then
  call('HSET', job, 'paused', nows, 'paused_by', ARGV[2], 'paused_why', ARGV[3])
else
  from = {s[3], s[4] or '', s[5] or ''}
  call('HSET', job, 'since', string.format('%.0f', math.max(now, tonumber(s[2] or '') or 0)))
  call('HDEL', job, 'paused', 'paused_by', 'paused_why')
end
pcall(call, 'XADD', history, 'MAXLEN', '50', '*', 'outcome', op, 'count', 0, 'by', ARGV[2], 'reason', ARGV[3])
pcall(call, 'PEXPIRE', history, '604800000')
return {'OK', 1, from[1], from[2], from[3]}
