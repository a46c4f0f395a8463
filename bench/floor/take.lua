-- Acks a batch, writes its results, takes the next one.
-- KEYS 1 unacked 2 unacked_index 3 to 6 the lists, in order of priority
-- ARGV 1 wanted 2 number of the call 3 acked so many, then per ack: tag, result key, result
-- return the messages taken; message j has the tag floor:<call>:<j>
local acks = tonumber(ARGV[3])
if acks > 0 then
  local tags = {}
  for i = 1, acks do tags[i] = ARGV[1 + 3 * i] end
  redis.call('ZREM', KEYS[2], unpack(tags))
  redis.call('HDEL', KEYS[1], unpack(tags))
  for i = 1, acks do
    local key, result = ARGV[2 + 3 * i], ARGV[3 + 3 * i]
    redis.call('SET', key, result, 'EX', 86400)
    redis.call('PUBLISH', key, result)
  end
end
local want, taken = tonumber(ARGV[1]), {}
for list = 3, 6 do
  if want > 0 then
    for _, raw in ipairs(redis.call('RPOP', KEYS[list], want) or {}) do taken[#taken + 1] = raw end
    want = tonumber(ARGV[1]) - #taken
  end
end
if #taken > 0 then
  local lease = redis.call('TIME')[1] + 30
  local held, index = {}, {}
  for j, raw in ipairs(taken) do
    local tag = 'floor:' .. ARGV[2] .. ':' .. j
    held[2 * j - 1], held[2 * j] = tag, '[' .. raw .. ', "", "celery"]'
    index[2 * j - 1], index[2 * j] = lease, tag
  end
  redis.call('HSET', KEYS[1], unpack(held))
  redis.call('ZADD', KEYS[2], unpack(index))
end
return taken
