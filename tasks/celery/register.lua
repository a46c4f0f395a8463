-- register: enters a replica into the registry, before it takes anything.
-- KEYS 1 replicas 2 buried 3 calls 4 own entry
-- ARGV 1 instance 2 TTL (s) 3 how long a new one buries nobody (s) 4 host
--      5 prefix of entry keys 6 lists, as JSON 7 pid 8 instance that this
--      replica had before, '' for none 9 version; then the node names to choose
--      from
-- returns {node name, now (µs)}
local id = ARGV[1]
local now = micros()
local taken = {}
for _, other in ipairs(call('ZRANGE', KEYS[1], 0, -1)) do
  local node = call('HGET', ARGV[5] .. other, 'node')
  if node and other ~= ARGV[8] then taken[node] = true end
end
local node = ARGV[10]
for i = 10, #ARGV do
  if not taken[ARGV[i]] then
    node = ARGV[i]
    break
  end
end
-- A replica that lost its place without being buried (the registry lost its
-- data) is buried by itself: its runs have ended, so no death counts.
if ARGV[8] ~= '' and not call('ZSCORE', KEYS[2], ARGV[8]) then
  call('ZREM', KEYS[1], ARGV[8])
  call('HDEL', KEYS[3], ARGV[8])
  call('ZADD', KEYS[2], seconds(now), ARGV[8])
  call('HSET', ARGV[5] .. ARGV[8], 'left', '1', 'lists', ARGV[6])
end
call('ZADD', KEYS[1], seconds(now + ARGV[2] * 1000000), id)
call('HSET', KEYS[3], id, '0')
call('HSET', KEYS[4], 'node', node, 'host', ARGV[4], 'pid', ARGV[7], 'lists', ARGV[6], 'version', ARGV[9],
  'since', whole(now), 'quiet', seconds(now + ARGV[3] * 1000000))
return {node, whole(now)}
