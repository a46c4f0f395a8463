-- Ends claims with a result, each by itself. The lease is not tested: a late completion that
-- nobody has overtaken is accepted.
--
-- Per record i, from 0:
-- KEYS[2i+1]   the record
-- KEYS[2i+2]   its result, where it is above 64 bytes
-- ARGV[11i+1]  owner
-- ARGV[11i+2]  fence
-- ARGV[11i+3]  retention, ms
-- ARGV[11i+4]  kind of the result: none | inline | big | omitted
-- ARGV[11i+5]  the result, for inline and big
-- ARGV[11i+6]  attempt
-- ARGV[11i+7]  task id
-- ARGV[11i+8]  instance
-- ARGV[11i+9]  fingerprint, "" for none
-- ARGV[11i+10] key's namespace
-- ARGV[11i+11] key's text
--
-- Returns, in a list where there are several, {code}, or the error that it has met:
--   done    completed now, or before by the same claim
--   lost    as done, but the record had vanished and was made anew
--   stale   the record is another's
-- With flag allow-oom: the effect has happened, so a full server must not
-- refuse it. On servers without flags the PEXPIRE or DEL in front has the same
-- effect, since what a script has begun to write is not refused in its middle.

local call = redis.call

local function complete(record, result, owner, fence, retention, kind, data, attempt, task, instance, print, namespace, text)
  local f = call('HMGET', record, 's', 'o', 'f', 'x')
  local state = f[1]
  if state then
    if f[2] ~= owner or tonumber(f[3]) ~= tonumber(fence) then
      return {'stale'}
    end
    if state == 'completed' then
      if f[4] then
        return {'lost'}
      end
      return {'done'}
    end
    if state ~= 'in_progress' then
      return {'stale'}
    end
    call('PEXPIRE', record, retention)
  end
  if kind ~= 'big' or not state then
    call('DEL', result)
  end

  local t = call('TIME')
  local now = t[1] .. string.sub(string.rep('0', 6 - #t[2]) .. t[2], 1, 3)
  if not state then
    call('HSET', record,
      'o', owner, 'f', fence, 'a', attempt, 't', task, 'i', instance,
      'kn', namespace, 'kt', text, 'c', now, 'x', 1)
    if print ~= '' then
      call('HSET', record, 'p', print)
    end
    call('PEXPIRE', record, retention)
  end
  if kind == 'inline' then
    call('HSET', record, 's', 'completed', 'd', now, 'rk', kind, 'r', data)
    call('HDEL', record, 'l', 'b')
  else
    call('HSET', record, 's', 'completed', 'd', now, 'rk', kind)
    call('HDEL', record, 'l', 'b', 'r')
    if kind == 'big' then
      call('SET', result, data, 'PX', retention)
    end
  end
  if state then
    return {'done'}
  end
  return {'lost'}
end

local replies = {}
for i = 0, #KEYS / 2 - 1 do
  local ok, reply = pcall(complete, KEYS[2 * i + 1], KEYS[2 * i + 2], unpack(ARGV, 11 * i + 1, 11 * i + 11))
  if not ok then -- a text in Redis 6
    reply = type(reply) == 'table' and reply or {err = tostring(reply)}
  end
  replies[i + 1] = reply
end
return #KEYS == 2 and replies[1] or replies
