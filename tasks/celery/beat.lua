-- beat: tells that this replica lives, and buries those that have not. Redis
-- decides by its own clock, so a stall of the server buries nobody alive: a
-- replica whose own beat is old sees that everyone's must be.
-- KEYS 1 replicas 2 buried 3 calls 4 own entry 5 parked; then own in-flight lists
-- ARGV 1 instance 2 TTL (s) 3 age of the own beat that tells of a stall (s)
--      4 how long to bury nobody then (s)
-- returns {1, now (µs), buried instances, due instant of the next parked
--      message (µs, '' for none), number of own in-flight lists that are not
--      empty, number buried now} or {-1} if this instance is not registered
local id = ARGV[1]
local mine = call('ZSCORE', KEYS[1], id)
if not mine then return {-1} end
local us = micros()
local now = us / 1000000
local quiet = tonumber(call('HGET', KEYS[4], 'quiet') or '0')
if now - (mine - ARGV[2]) > tonumber(ARGV[3]) then
  quiet = now + ARGV[4]
  call('HSET', KEYS[4], 'quiet', string.format('%.6f', quiet))
end
call('ZADD', KEYS[1], seconds(us + ARGV[2] * 1000000), id)
local n = 0
if now >= quiet then
  for _, other in ipairs(call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. seconds(us), 'LIMIT', 0, 200)) do
    call('ZREM', KEYS[1], other)
    call('HDEL', KEYS[3], other)
    call('ZADD', KEYS[2], seconds(us), other)
    n = n + 1
  end
end
local inflight = 0
if #KEYS > 5 then inflight = call('EXISTS', unpack(KEYS, 6)) end
local next = call('ZRANGE', KEYS[5], 0, 0, 'WITHSCORES')
return {1, whole(us), call('ZRANGE', KEYS[2], 0, 199), next[2] and whole(tonumber(next[2])) or '', inflight, n}
