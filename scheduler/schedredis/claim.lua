-- claim: settles one tick of one job, and publishes its message in the same
-- step.
--
-- KEYS  1 the job's hash      2 the job's history (stream)
--       3 the current file (hash)   4 the list to publish to
-- ARGV  1 tick ms             2 due ms (tick + jitter)
--       3 miss-after ms       4 previous tick ms ('' none)
--       5 in order (0|1)      6 base ms: the newest settled instant the claimant
--       7 jumped ticks           knows
--       8 next tick ms ('' none)    9 revision     10 file
--       11 label              12 civil label ('' none)
--       13 instance id        14 instance name     15 task id
--       16 message            17 whole: claim and publish; give up: settle as
--                                missed; look: change nothing where the answer
--                                is FIRED; sent: claim what was sent elsewhere
-- Returns a list, the first element says which:
--   {'FIRED',    now ms}
--   {'DUP',      now ms, mark ms, last tick ms ('' none), by, what became of
--                it: 'fired' | 'missed' | 'paused' | ''}
--   {'EARLY',    now ms, ms left}
--   {'STALE',    now ms, generation of the current file}
--   {'GAP',      now ms, mark ms}
--   {'MISSED',   now ms}
--   {'PAUSED',   now ms}
--   {'UNSEEDED', now ms, mark ms ('' if no file is current: beat first)}
-- The mark is the newest settled instant: the last tick, or the job's
-- activation. What can be refused is done before the first write, and LPUSH is
-- the first write, so that no tick is settled without its message.
local call = redis.call
local job, history = KEYS[1], KEYS[2]
local tick, due, missafter = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local jumped, rev, file = tonumber(ARGV[7]), ARGV[9], ARGV[10]
local label, civil = ARGV[11], ARGV[12]

local t = call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local nows = string.format('%.0f', now)

local function note(outcome, count, late)
  pcall(call, 'XADD', history, 'MAXLEN', '50', '*', 'outcome', outcome, 'tick', ARGV[1], 'label', label,
    'count', count, 'by', ARGV[14], 'id', ARGV[13], 'task', outcome == 'fired' and ARGV[15] or '', 'late', late)
  pcall(call, 'PEXPIRE', history, '604800000')
end

-- paused_before takes the last row out of the history if it tells of ticks of a
-- paused job, and returns how many: a pause shall not push all else out.
local function paused_before()
  local ok, rows = pcall(call, 'XREVRANGE', history, '+', '-', 'COUNT', '1')
  local row = ok and rows[1]
  if not row then return 0 end
  local f = {}
  for i = 1, #row[2], 2 do f[row[2][i]] = row[2][i + 1] end
  if f.outcome ~= 'paused' then return 0 end
  pcall(call, 'XDEL', history, row[1])
  return tonumber(f.count) or 0
end

local cur = call('HMGET', KEYS[3], 'gen', 'file')
if not cur[1] then return {'UNSEEDED', nows, ''} end

local s = call('HMGET', job, 'rev', 'gen', 'last', 'since', 'civil', 'lrev', 'by', 'result', 'paused', 'begun')
if s[1] ~= rev or s[2] ~= cur[1] then
  if cur[2] ~= file then return {'STALE', nows, cur[1]} end
  -- The current file is the claimant's own, so its revision is the current
  -- one: the job's state was lost, whole or in part. It starts afresh.
  call('HSET', job, 'rev', rev, 'gen', cur[1], 'since', nows)
  note('seeded', 0, 0)
  return {'UNSEEDED', nows, nows}
end

local last = tonumber(s[3] or '')
local mark = tonumber(s[4] or '') or 0
if last and last > mark then mark = last end
if tick <= mark then return {'DUP', nows, string.format('%.0f', mark), s[3] or '', s[7] or '', s[8] or ''} end
if now < due then return {'EARLY', nows, string.format('%.0f', due - now)} end

-- Two replicas with different zone data reckon two instants for one civil time.
if civil ~= '' and civil == s[5] and rev == s[6] and last and tick - last < 93600000 then
  call('HSET', job, 'last', ARGV[1])
  return {'DUP', nows, ARGV[1], ARGV[1], '?', ''}
end

-- A message that was sent already is claimed, whoever has paused the job since.
local step = ARGV[17]
local late = step == 'give up' or (now > missafter and step ~= 'sent')
local paused = s[9] and step ~= 'sent'
local prev = tonumber(ARGV[4])
if (jumped > 0 and tonumber(ARGV[6]) ~= mark) or (ARGV[5] == '1' and not late and prev and prev > mark) then
  return {'GAP', nows, string.format('%.0f', mark)}
end

if step == 'look' and not late and not paused then return {'FIRED', nows} end

local result = paused and 'paused' or late and 'missed' or 'fired'
if result == 'fired' then
  if step == 'whole' then call('LPUSH', KEYS[4], ARGV[16]) end
  call('HINCRBY', job, 'seq', 1)
end
call('HSET', job, 'last', ARGV[1], 'label', label, 'civil', civil, 'lrev', rev, 'at', nows, 'next', ARGV[8],
  'by', ARGV[13], 'name', ARGV[14], 'result', result, 'task', result == 'fired' and ARGV[15] or '')
local lateness = string.format('%.0f', now - due)
if result == 'paused' then
  call('HINCRBY', job, 'skipped', jumped + 1)
  if tick > (tonumber(s[10] or '') or 0) then call('HSET', job, 'begun', ARGV[1]) end -- settled without a run
  note('paused', paused_before() + jumped + 1, '0')
  return {'PAUSED', nows}
end
if result == 'missed' then
  call('HINCRBY', job, 'missed', jumped + 1)
  note('missed', jumped + 1, lateness)
  return {'MISSED', nows}
end
if jumped > 0 then
  call('HINCRBY', job, 'missed', jumped)
  note('jumped', jumped, lateness)
end
note('fired', 1, lateness)
return {'FIRED', nows}
