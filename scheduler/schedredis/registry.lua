-- registry: keeps the schedulers' registry and says whose file is current.
--
-- KEYS  1 beats (zset: instance id, score = last beat in ms)
--       2 info  (hash: <id>:load, :file, :quiet, :name, :path)
--       3 files (hash: file hash -> last beat of a replica that has it, ms)
--       4 the current file (hash: gen, file, load, id, name, path)
-- ARGV  1 beat | leave        2 key prefix of revs:<file>, job:<name>,
--       3 instance id            history:<name>
--       4 file hash           5 load instant in µs ('' at the first beat)
--       6 name                7 path
--       8 map follows (0|1)   9 settled ms: how far the replica has settled its
--       10.. job, revision, …   file before ('' at its start)
-- Returns {'MAP'} if the file's map is not stored and was not sent: send it.
-- Else {'OK', load µs, now ms, registered (0|1), switched (0|1), buried ids,
--       gen, file, id, name, path, number of other replicas not buried yet}
--
-- Rules. The current file is that of the live replica with the latest load
-- instant; a replica is dead when it is buried. A beat buries those whose last
-- beat is older than 10 s, but not while a stall of the store may be why they
-- are silent: nobody for 15 s if the replica's own last beat is older than 5 s,
-- nobody for 5 s after it registered.
-- When another file becomes current, each job whose revision changes becomes
-- active at the later of the load instant and the last beat of the replaced
-- revision. So no edit fires retroactively, and none stops the clock. A replica
-- that goes from one file to another has settled the ticks of the one up to an
-- instant just before: from that on those of the other count.
local call = redis.call
local beats, info, files, current = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local op, prefix, id, file = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local day, month = 86400000, '2592000000'

local t = call('TIME')
local us = tonumber(t[1]) * 1000000 + tonumber(t[2])
local now = math.floor(us / 1000)
local settled = tonumber(ARGV[9] or '')
if settled then settled = math.min(settled, now) end
local function int(n) return string.format('%.0f', n) end

local function drop(who)
  call('ZREM', beats, who)
  call('HDEL', info, who .. ':load', who .. ':file', who .. ':quiet', who .. ':name', who .. ':path')
end

local function beatof(f) return tonumber(call('HGET', files, f) or '') or 0 end

-- newest returns id, file and load of the live replica with the latest load.
local function newest()
  local who, what, load
  for _, r in ipairs(call('ZRANGE', beats, 0, -1)) do
    local v = call('HMGET', info, r .. ':load', r .. ':file')
    local l = tonumber(v[1] or '')
    if l and (not load or l > load) then who, what, load = r, v[2], l end
  end
  return who, what, load
end

-- became returns the instant from which a job's new revision is active.
local function became(job, rev, state, load, from, old, known)
  if from then return math.max(from, tonumber(state[3] or '') or 0) end
  local since = math.floor(load / 1000)
  if state[2] ~= old.gen then
    -- The file before did not have the job at all.
    since = math.max(since, old.file and beatof(old.file) or 0)
  else
    for f, beat in pairs(known) do
      if beat > since and call('HGET', prefix .. 'revs:' .. f, job) == state[1] then since = beat end
    end
  end
  return math.max(since, tonumber(state[3] or '') or 0)
end

-- switch makes the file of replica who the current one, for all its jobs.
local function switch(who, to, load, from)
  local c = call('HMGET', current, 'gen', 'file')
  local old = {gen = c[1], file = c[2]}
  local gen = int(math.max(us, (tonumber(old.gen or '') or 0) + 1))
  local known = {}
  local all = call('HGETALL', files)
  for i = 1, #all, 2 do
    local beat = tonumber(all[i + 1]) or 0
    if now - beat > day then call('HDEL', files, all[i]) else known[all[i]] = beat end
  end
  local revs, has = call('HGETALL', prefix .. 'revs:' .. to), {}
  for i = 1, #revs, 2 do
    local job, rev = revs[i], revs[i + 1]
    if job ~= '' then
      has[job] = true
      local key = prefix .. 'job:' .. job
      local s = call('HMGET', key, 'rev', 'gen', 'since')
      if not s[1] then
        call('HSET', key, 'rev', rev, 'gen', gen, 'since', int(from or now))
        pcall(call, 'XADD', prefix .. 'history:' .. job, 'MAXLEN', '50', '*', 'outcome', 'seeded', 'count', 0, 'by', ARGV[6], 'id', id)
        pcall(call, 'PEXPIRE', prefix .. 'history:' .. job, '604800000')
      elseif s[1] ~= rev or s[2] ~= old.gen then
        call('HSET', key, 'rev', rev, 'gen', gen, 'since', int(became(job, rev, s, load, from, old, known)))
      else
        call('HSET', key, 'gen', gen)
      end
      if s[2] ~= old.gen then call('PERSIST', key) end
    end
  end
  if old.file and old.file ~= to then
    for _, job in ipairs(call('HKEYS', prefix .. 'revs:' .. old.file)) do
      if job ~= '' and not has[job] then call('PEXPIRE', prefix .. 'job:' .. job, month) end
    end
  end
  call('HSET', current, 'gen', gen, 'file', to)
end

-- settle looks whose file is newest, and returns 1 if that is another one now.
local function settle()
  local who, what, load = newest()
  if not who then return 0 end
  local switched = 0
  local c = call('HGET', current, 'file')
  if c ~= what then
    -- Its own replicas store a map that is missing with their next beat.
    if call('EXISTS', prefix .. 'revs:' .. what) == 0 then return 0 end
    switch(who, what, load, who == id and settled or nil)
    switched = 1
  end
  local v = call('HMGET', info, who .. ':name', who .. ':path')
  call('HSET', current, 'load', int(load), 'id', who, 'name', v[1] or '', 'path', v[2] or '')
  return switched
end

if op == 'leave' then
  if call('ZSCORE', beats, id) then
    call('HSET', files, file, int(now))
    drop(id)
  end
  return {'OK', '', int(now), 0, settle(), {}, '', '', '', '', '', 0}
end

local load, held = tonumber(ARGV[5]), tonumber(call('HGET', info, id .. ':load') or '')
if load and held and load < held then
  -- Sent before the replica took another file, and held up on its way.
  local c = call('HMGET', current, 'gen', 'file', 'id', 'name', 'path')
  return {'OK', ARGV[5], int(now), 0, 0, {}, c[1] or '', c[2] or '', c[3] or '', c[4] or '', c[5] or '', call('ZCARD', beats) - 1}
end

local map = prefix .. 'revs:' .. file
if ARGV[8] == '1' then
  call('DEL', map)
  call('HSET', map, '', '') -- so that a file without jobs has a map too
  for i = 10, #ARGV, 2 do call('HSET', map, ARGV[i], ARGV[i + 1]) end
elseif call('EXISTS', map) == 0 then
  return {'MAP'}
end
call('PEXPIRE', map, int(day))
call('HSET', files, file, int(now))

local own = tonumber(call('ZSCORE', beats, id) or '')
if not load then
  load = us
  for _, r in ipairs(call('ZRANGE', beats, 0, -1)) do
    load = math.max(load, (tonumber(call('HGET', info, r .. ':load') or '') or 0) + 1)
  end
  load = math.max(load, (tonumber(call('HGET', current, 'load') or '') or 0) + 1)
end
local quiet = tonumber(call('HGET', info, id .. ':quiet') or '') or 0
if not own then
  quiet = math.max(quiet, now + 5000)
elseif now - own > 5000 then
  quiet = math.max(quiet, now + 15000)
end
call('ZADD', beats, int(now), id)
call('HSET', info, id .. ':load', int(load), id .. ':file', file, id .. ':quiet', int(quiet), id .. ':name', ARGV[6], id .. ':path', ARGV[7])

-- A failover may have put the clock back: nobody lives in the future.
for _, r in ipairs(call('ZRANGEBYSCORE', beats, '(' .. int(now), '+inf')) do call('ZADD', beats, int(now), r) end
local buried = {}
if now >= quiet then
  for _, r in ipairs(call('ZRANGEBYSCORE', beats, '-inf', '(' .. int(now - 10000))) do
    drop(r)
    buried[#buried + 1] = r
  end
end
local switched = settle()
local c = call('HMGET', current, 'gen', 'file', 'id', 'name', 'path')
return {'OK', int(load), int(now), own and 0 or 1, switched, buried,
  c[1] or '', c[2] or '', c[3] or '', c[4] or '', c[5] or '', call('ZCARD', beats) - 1}
