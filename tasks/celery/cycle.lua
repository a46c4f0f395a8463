-- cycle: acks what has finished, frees the locks of its runs and takes new
--      messages, in one atomic step.
-- KEYS 1 unacked 2 unacked_index 3 calls; then L source lists in the order of
--      service; then the L in-flight lists that belong to them; then the F locks to
--      free; then, if a lock or a record was released, parked, park info and the
--      lines to bring forward
-- ARGV 1 instance 2 number of the call, as in tags 3 messages wanted 4 lead of the score
--      (s) 5 L 6 number of acks 7 TTL of results (s, 0 for ever) 8 database of
--      the results, '' if the broker's 9 database of the broker 10 prefix of
--      our keys 11 bound of dead letters 12 their age (ms) 13 namespace 14 F; then
--      per list: queue, step, what follows raw in an entry; then per ack: tag
--      ('' writes in any case), result key ('' for none), result; then per lock:
--      token, channel of releases
-- returns {state, now (µs, text), lost tags, {list, count, …} of what was
--      taken, raws, handed back, {list, count, of these beside the stream, …}
--      of what went to the dead letters since it is no envelope, how long this
--      took (µs), per lock what unlock says, -2 for an error}; state 1:
--      done; 2: this call was made before,
--      and raws holds its tags and entries in turn; -1: this instance is not
--      registered (the acks are done all the same)
local unacked, index, calls = KEYS[1], KEYS[2], KEYS[3]
local id, want, lead = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local seq, L, acks, F = tonumber(ARGV[2]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[14])
local own = ARGV[10]
local now = micros()

-- tag_head, tag_tail: the tag of the j-th message of this call is head, j in
-- three digits, tail. So its number, call * 1000 + j, is text made of texts:
-- to print a double costs as much as a command.
local tag_head = 'sb:' .. id .. ':' .. ARGV[2]
local function tag_tail(step) return ':' .. step .. ':' .. ARGV[13] end

local last = call('HGET', calls, id)
if last and tonumber(last) >= seq then
  local again = {}
  if tonumber(last) == seq then
    for j = 1, 999 do
      for _, step in ipairs({'0', '3', '6', '9'}) do
        local tag = tag_head .. string.format('%03d', j) .. tag_tail(step)
        local value = call('HGET', unacked, tag)
        if value then again[#again + 1] = tag; again[#again + 1] = value end
      end
    end
  end
  return {2, whole(now), {}, {}, again, 0, {}, 0, {}}
end

-- First every tag is looked at, then results are written, then acks: should a
-- write be refused, nothing has been acked without its result.
local lost, mine, tags = {}, {}, {}
local base = 14 + 3 * L
for i = 1, acks do
  local tag = ARGV[base + 3 * i - 2]
  if tag == '' then
    mine[i] = true
  elseif call('HEXISTS', unacked, tag) == 1 then
    mine[i] = true
    tags[#tags + 1] = tag
  else
    lost[#lost + 1] = tag
  end
end
if ARGV[8] ~= '' and acks > 0 then call('SELECT', ARGV[8]) end
for i = 1, acks do
  local key = ARGV[base + 3 * i - 1]
  if mine[i] and key ~= '' then store(key, ARGV[base + 3 * i], ARGV[7]) end
end
if ARGV[8] ~= '' and acks > 0 then call('SELECT', ARGV[9]) end
if #tags > 0 then
  call('HDEL', unacked, unpack(tags))
  call('ZREM', index, unpack(tags))
end

-- A run whose message is no longer ours has its lock freed like any other: only
-- the token counts.
local unlocked = {}
for i = 1, F do
  local at = base + 3 * acks + 2 * i
  local code = unlock(KEYS[3 + 2 * L + i], ARGV[at - 1], ARGV[at])
  unlocked[i] = type(code) == 'number' and code or -2
end

-- After the acks, so that a wake is never on the way alone. Mostly nobody is
-- parked, which one look tells; a line that is broken must not bar the acks.
local lines = 5 + 2 * L + F
if #KEYS > lines and call('EXISTS', unpack(KEYS, lines + 1)) > 0 then
  local keys = {unacked = unacked, index = index, parked = KEYS[lines - 1], info = KEYS[lines]}
  for i = lines + 1, #KEYS do pcall(bring_forward, keys, KEYS[i], now) end
end

if not last then return {-1, whole(now), lost, {}, {}, 0, {}, 0, unlocked} end
call('HSET', calls, id, ARGV[2])

-- envelope: may raw lie where Python workers read it? Four words are looked
-- for; what fails is parsed, since an envelope may be written otherwise. A
-- search stops at every quote on its way, so it begins where kombu writes the
-- word, and only then looks elsewhere. To call a function of Lua costs as much
-- as to look, so there is none of it here.
local find, byte, open, shut = string.find, string.byte, string.byte('{}', 1, 2)
local function envelope(raw)
  local ct = byte(raw, 1) == open and byte(raw, -1) == shut and find(raw, '"content-type"', 1, true)
  if ct and (find(raw, '"headers"', ct, true) or find(raw, '"headers"', 1, true))
    and (find(raw, '"delivery_tag"', -70, true) or find(raw, '"delivery_tag"', 1, true))
    and (find(raw, '"delivery_info"', -250, true) or find(raw, '"delivery_info"', 1, true)) then
    return true
  end
  local ok, e = pcall(cjson.decode, raw)
  return ok and type(e) == 'table' and type(e.headers) == 'table' and type(e.properties) == 'table'
    and type(e.properties.delivery_info) == 'table' and e.properties.delivery_tag ~= nil
    and e['content-type'] ~= nil
end

-- Nothing is popped unless it can be put down: a key of another type in the
-- place of one of these ends the script here.
call('HLEN', unacked)
call('ZCARD', index)

local runs, raws, back, diverted = {}, {}, 0, {}
local h, z, c = {}, {}, 0
-- In whole seconds: a fraction is slow to read, once per message.
local score = whole(math.floor(now / 1000000) + lead)

local function take(i, key, list)
  if want <= 0 then return end
  local got = pcall_redis('RPOP', key, want)
  if type(got) ~= 'table' or got.err then return end
  local queue, tail, suffix = ARGV[12 + 3 * i], tag_tail(ARGV[13 + 3 * i]), ARGV[14 + 3 * i]
  local kept, beside = 0, 0
  for j = 1, #got do
    local raw = got[j]
    if envelope(raw) then
      c = c + 1
      kept = kept + 1
      local tag = tag_head .. string.format('%03d', c) .. tail
      h[2 * c - 1] = tag
      h[2 * c] = '[' .. raw .. suffix
      z[2 * c - 1] = score
      z[2 * c] = tag
      raws[c] = raw
    elseif not dead_letter(own, tonumber(ARGV[11]), tonumber(ARGV[12]), now,
      {queue = queue, reason = 'NotEnvelope', instance = id, list = list}, raw) then
      beside = beside + 1
    end
  end
  if kept > 0 then
    runs[#runs + 1] = i
    runs[#runs + 1] = kept
  end
  if kept < #got then
    diverted[#diverted + 1] = i
    diverted[#diverted + 1] = #got - kept
    diverted[#diverted + 1] = beside
  end
  want = want - #got
end

for i = 1, L do
  local list, inflight = KEYS[3 + i], KEYS[3 + L + i]
  take(i, inflight, list)
  while true do
    local v = pcall_redis('LMOVE', inflight, list, 'LEFT', 'RIGHT')
    if type(v) ~= 'string' then break end
    back = back + 1
  end
  take(i, list, list)
end
if c > 0 then
  call('HSET', unacked, unpack(h))
  call('ZADD', index, unpack(z))
end
return {1, whole(now), lost, runs, raws, back, diverted, micros() - now, unlocked}
