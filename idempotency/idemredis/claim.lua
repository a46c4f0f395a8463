-- Claims records (absent, released, or in progress with a passed lease), each
-- by itself.
--
-- Per record i, from 0:
-- KEYS[2i+1]  the record, a hash
-- KEYS[2i+2]  its result, a string, where it is above 64 bytes
-- ARGV[9i+1]  owner of this attempt
-- ARGV[9i+2]  fingerprint, "" compares nothing
-- ARGV[9i+3]  lease, ms
-- ARGV[9i+4]  hold: time to live of a record without an end, ms
-- ARGV[9i+5]  fence of the lock, 0 for none
-- ARGV[9i+6]  task id
-- ARGV[9i+7]  instance
-- ARGV[9i+8]  key's namespace
-- ARGV[9i+9]  key's text
--
-- Returns, in a list where there are several, {code, now ms, time to live ms, result or false, field,
-- value, ...} with the record as it now stands, or the error that it has met;
-- code is one of
--   run       claimed, or claimed before by the same owner
--   replay    completed
--   busy      in progress, lease not passed
--   backoff   released, back-off not passed
--   failed    failed for good
--   mismatch  another fingerprint
-- Without flags: a full server refuses a new claim, and still answers the rest.

local call = redis.call
local t = call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
-- Texts put together from TIME's own, since to print a double is slow.
local micros = t[1] .. string.rep('0', 6 - #t[2]) .. t[2]
local now_text = string.sub(micros, 1, -4)

local function answer(code, record, result)
  local big = false
  if call('HGET', record, 'rk') == 'big' then
    big = call('GET', result)
  end
  local reply = {code, now, call('PTTL', record), big}
  local all = call('HGETALL', record)
  for i = 1, #all do
    reply[#reply + 1] = all[i]
  end
  return reply
end

local function claim(record, result, new_owner, new_print, term, hold, min_fence, task, instance, namespace, text)
  local f = call('HMGET', record, 's', 'o', 'f', 'a', 'l', 'b', 'p')
  local state, owner, lease, backoff, print = f[1], f[2], tonumber(f[5] or 0), tonumber(f[6] or 0), f[7] or ''
  local until_text = string.format('%.0f', now + term)

  if not state then
    local fence = min_fence
    if tonumber(fence) <= 0 then
      fence = micros
    end
    local fields = {'s', 'in_progress', 'o', new_owner, 'f', fence, 'a', '1', 'l', until_text, 't', task, 'i', instance,
      'k', '0', 'kn', namespace, 'kt', text, 'c', now_text}
    if new_print ~= '' then
      fields[23], fields[24] = 'p', new_print
    end
    call('HSET', record, unpack(fields))
    call('PEXPIRE', record, hold)
    return {'run', now, tonumber(hold), false, unpack(fields)}
  end

  if new_print ~= '' and print ~= '' and print ~= new_print then
    return answer('mismatch', record, result)
  end
  if state == 'completed' then
    return answer('replay', record, result)
  end
  if state == 'failed' then
    return answer('failed', record, result)
  end
  if state == 'in_progress' and owner == new_owner then
    call('HSET', record, 'l', until_text)
    call('PEXPIRE', record, hold)
    return answer('run', record, result)
  end
  if state == 'in_progress' and lease > now then
    return answer('busy', record, result)
  end
  if state == 'released' and backoff > now then
    return answer('backoff', record, result)
  end

  local base = tonumber(min_fence)
  if base <= 0 then
    base = tonumber(micros)
  end
  call('HSET', record,
    's', 'in_progress',
    'o', new_owner,
    'f', string.format('%.0f', math.max(tonumber(f[3] or 0) + 1, base)),
    'a', string.format('%.0f', tonumber(f[4] or 0) + 1),
    'l', until_text,
    't', task,
    'i', instance,
    'k', state == 'in_progress' and 1 or 0)
  if new_print ~= '' then
    call('HSET', record, 'p', new_print)
  end
  call('HDEL', record, 'b', 'd', 'ec', 'em')
  call('PEXPIRE', record, hold)
  return answer('run', record, result)
end

local replies = {}
for i = 0, #KEYS / 2 - 1 do
  local ok, reply = pcall(claim, KEYS[2 * i + 1], KEYS[2 * i + 2], unpack(ARGV, 9 * i + 1, 9 * i + 9))
  if not ok then -- a text in Redis 6
    reply = type(reply) == 'table' and reply or {err = tostring(reply)}
  end
  replies[i + 1] = reply
end
return #KEYS == 2 and replies[1] or replies
