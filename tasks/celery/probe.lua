-- probe: tries on probe keys what the other scripts need.
-- KEYS 1 a key on the broker 2 a key of results, if scripts write them
-- ARGV 1 database of the results, '' if the broker's 2 database of the broker
-- returns {} or, for the first command that the server refuses, {command,
--      what the server says}
local k = KEYS[1]
local steps = {
  {'SET', k, '1', 'EX', '5'}, {'PUBLISH', k, '1'}, {'DEL', k},
  {'HSET', k, 'f', '1'}, {'HINCRBY', k, 'f', '1'}, {'HGET', k, 'f'}, {'HEXISTS', k, 'f'}, {'HLEN', k}, {'HSCAN', k, '0'}, {'HDEL', k, 'f'},
  {'ZADD', k, '1', 'm'}, {'ZSCORE', k, 'm'}, {'ZCARD', k}, {'ZRANGE', k, '0', '0'}, {'ZRANGEBYSCORE', k, '1', '1'}, {'ZREM', k, 'm'},
  {'RPUSH', k, '1'}, {'LPUSH', k, '1'}, {'LMOVE', k, k, 'LEFT', 'RIGHT'}, {'RPOP', k, '2'},
  {'SADD', k, 'm'}, {'DEL', k},
  {'XADD', k, '*', 'f', '1'}, {'XLEN', k}, {'XTRIM', k, 'MINID', '0'}, {'TIME'},
}
local function add(step) steps[#steps + 1] = step end
if ARGV[1] ~= '' then add({'SELECT', ARGV[1]}) end
if KEYS[2] then
  add({'GET', KEYS[2]})
  add({'SET', KEYS[2], '1', 'EX', '5'})
  add({'PUBLISH', KEYS[2], '1'})
  add({'DEL', KEYS[2]})
end
if ARGV[1] ~= '' then add({'SELECT', ARGV[2]}) end
add({'DEL', KEYS[1]})
for _, step in ipairs(steps) do
  local r = redis.pcall(unpack(step))
  if type(r) == 'table' and r.err then
    pcall_redis('DEL', KEYS[1])
    return {step[1], r.err}
  end
end
return {}
