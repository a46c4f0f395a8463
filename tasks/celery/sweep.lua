-- sweep: empties in-flight lists of a replica that is not alive, and ends a
-- burial that is old enough.
-- KEYS 1 replicas 2 buried 3 calls 4 entry of the instance; then its in-flight
--      lists and after them, in the same order, the lists they belong to
-- ARGV 1 instance 2 1 if its entries in unacked have been moved, else 0
--      3 how long lists are swept after a burial (s)
-- returns {number moved, 1 if the burial is over} or {-1} if it is alive
if call('ZSCORE', KEYS[1], ARGV[1]) then return {-1} end
local half = (#KEYS - 4) / 2
local n = 0
for i = 1, half do
  while true do
    local v = pcall_redis('LMOVE', KEYS[4 + i], KEYS[4 + half + i], 'LEFT', 'RIGHT')
    if type(v) ~= 'string' then break end
    n = n + 1
  end
end
local at = call('ZSCORE', KEYS[2], ARGV[1])
if not at then return {n, 1} end
if ARGV[2] == '1' then call('HSET', KEYS[4], 'moved', '1') end
if call('HGET', KEYS[4], 'moved') == '1' and micros() / 1000000 - at > tonumber(ARGV[3]) then
  call('ZREM', KEYS[2], ARGV[1])
  call('HDEL', KEYS[3], ARGV[1])
  call('DEL', KEYS[4])
  return {n, 1}
end
return {n, 0}
