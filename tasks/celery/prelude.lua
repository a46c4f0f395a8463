-- prelude: functions that several scripts share; it is put in front of each.
-- It reads no KEYS and no ARGV, and returns nothing.
local call, pcall_redis = redis.call, redis.pcall

-- micros: the server's clock in whole microseconds (exact in a double).
local function micros()
  local t = call('TIME')
  return t[1] * 1000000 + t[2]
end

-- whole, seconds: numbers as text without loss; the default format of Lua
-- keeps 14 digits only.
local function whole(n) return string.format('%.0f', n) end
local function seconds(us) return string.format('%.6f', us / 1000000) end

-- succeeded: whether a stored result says SUCCESS. The usual layout is read
-- by its first bytes, any other one is parsed.
local function succeeded(value)
  local status = string.match(value, '^{"status": ?"(%u+)"')
  if status then return status == 'SUCCESS' end
  if string.sub(value, 1, 1) ~= '{' then return false end
  local ok, doc = pcall(cjson.decode, value)
  return ok and type(doc) == 'table' and doc.status == 'SUCCESS'
end

-- store: a result, as Celery stores it: never over a SUCCESS, the key before
-- the message on the channel, the same bytes. The caller has selected the
-- results' database. ttl '0' is for ever. NX first: mostly nothing stands
-- there, and that spares the look.
local function store(key, value, ttl)
  local set
  if ttl == '0' then set = call('SET', key, value, 'NX') else set = call('SET', key, value, 'EX', ttl, 'NX') end
  if not set then
    local old = pcall_redis('GET', key)
    if type(old) == 'string' and succeeded(old) then return end
    if ttl == '0' then call('SET', key, value) else call('SET', key, value, 'EX', ttl) end
  end
  call('PUBLISH', key, value)
end

-- dead_letter: keeps a message in the stream of its queue, which is bounded
-- by number (max) and age (ms); what falls out is counted. own is the prefix
-- of our keys, d a table of texts. Where the stream cannot be written (a key of
-- another type, a user without +xadd) the message is kept as it is in a list
-- beside it; it never raises, since its caller has taken other messages too.
-- Returns whether the message is in the stream.
local function dead_letter(own, max, age, now, d, raw)
  local stream = own .. 'dead:' .. d.queue
  local out = 0
  local n = pcall_redis('XLEN', stream)
  if type(n) ~= 'number' then
    pcall_redis('LPUSH', own .. 'dead-raw:' .. d.queue, raw)
    return false
  end
  if n > 0 then
    out = tonumber(pcall_redis('XTRIM', stream, 'MINID', whole(math.floor(now / 1000) - age))) or 0
    n = n - out
  end
  if n >= max then out = out + n - max + 1 end
  local added = pcall_redis('XADD', stream, 'MAXLEN', max, '*', 'raw', raw, 'reason', d.reason, 'detail', d.detail or '',
    'at', whole(math.floor(now / 1000)), 'instance', d.instance or '', 'list', d.list or '',
    'deliveries', d.deliveries or '0', 'task', d.task or '', 'id', d.id or '')
  if type(added) == 'table' and added.err then
    pcall_redis('LPUSH', own .. 'dead-raw:' .. d.queue, raw)
    return false
  end
  pcall_redis('SADD', own .. 'dead-queues', d.queue)
  if out > 0 then pcall_redis('HINCRBY', own .. 'dead-dropped', d.queue, out) end
  return true
end

-- The line of a key: a zset of park tags by the time of the first park. Only
-- the oldest has a timer; the others are due at the end of their wait. keys:
-- unacked, index, parked, info (the hash of what is known of parked tags).

-- set_due: when a parked message is due, in both indexes.
local function set_due(keys, tag, due)
  call('ZADD', keys.parked, whole(due), tag)
  call('ZADD', keys.index, seconds(due), tag)
end

local function info_of(keys, tag)
  local text = call('HGET', keys.info, tag)
  return text and cjson.decode(text)
end

-- give_timer: the oldest of a line gets its timer. What nothing is known of
-- any more would bar the line, so it is dropped from it.
local function give_timer(keys, line, now)
  while true do
    local tag = call('ZRANGE', line, 0, 0)[1]
    if not tag then return end
    local i = info_of(keys, tag)
    if i then
      set_due(keys, tag, math.min(now + tonumber(i.delay), tonumber(i.limit)))
      return
    end
    call('ZREM', line, tag)
  end
end

-- take_out: a parked message goes back to the taking end of its list. False
-- if it is gone (a Python worker restored it): then only the traces go; or if
-- nothing is known of it any more: then its entry stays, and the janitor, who
-- finds it in no index, puts it back.
local function take_out(keys, tag, now)
  local i, value = info_of(keys, tag), call('HGET', keys.unacked, tag)
  call('ZREM', keys.parked, tag)
  if value and not i then return false end
  call('HDEL', keys.info, tag)
  call('HDEL', keys.unacked, tag)
  call('ZREM', keys.index, tag)
  if i and i.line then
    -- Whoever leaves from the middle must not put the oldest one's timer off.
    local oldest = call('ZRANGE', i.line, 0, 0)[1] == tag
    call('ZREM', i.line, tag)
    if oldest then give_timer(keys, i.line, now) end
  end
  if not i or not value then return false end
  call('RPUSH', i.list, string.sub(value, 2, -1 - #i.suffix))
  return true
end

-- bring_forward: the oldest message of a line goes back and the next one gets
-- its timer. Returns how many went, 0 or 1.
local function bring_forward(keys, line, now)
  while true do
    local tag = call('ZRANGE', line, 0, 0)[1]
    if not tag then return 0 end
    if take_out(keys, tag, now) then return 1 end
    call('ZREM', line, tag) -- its traces may be gone; the line must shrink
  end
end

-- park: puts a message into unacked under a tag of no replica. o.due is when
-- its own timer ends, o.limit the end of its wait (both µs), o.line the line's
-- key or nil, o.order its place there, o.delay its timer's length.
local function park(keys, o, raw)
  call('HSET', keys.unacked, o.ptag, '[' .. raw .. o.suffix)
  call('HSET', keys.info, o.ptag,
    cjson.encode({list = o.list, suffix = o.suffix, line = o.line, delay = o.delay, limit = o.limit, queue = o.queue}))
  local due = tonumber(o.due)
  if o.line then
    local was = call('ZRANGE', o.line, 0, 0)[1]
    call('ZADD', o.line, o.order, o.ptag)
    if call('ZRANGE', o.line, 0, 0)[1] ~= o.ptag then
      due = tonumber(o.limit)
    elseif was and was ~= o.ptag then
      local i = info_of(keys, was)
      if i then set_due(keys, was, tonumber(i.limit)) end
    end
  end
  set_due(keys, o.ptag, due)
end
