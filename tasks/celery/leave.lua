-- leave: takes a replica out of the registry at its own wish.
-- KEYS 1 replicas 2 buried 3 calls 4 own entry; then own in-flight lists and
--      after them, in the same order, the lists they belong to
-- ARGV 1 instance 2 1 if messages are still under its tags, else 0
-- returns the number of messages moved from in-flight lists
local half = (#KEYS - 4) / 2
local n = 0
for i = 1, half do
  while true do
    local v = pcall_redis('LMOVE', KEYS[4 + i], KEYS[4 + half + i], 'LEFT', 'RIGHT')
    if type(v) ~= 'string' then break end
    n = n + 1
  end
end
local was = call('ZREM', KEYS[1], ARGV[1])
call('HDEL', KEYS[3], ARGV[1])
if ARGV[2] == '1' and was == 1 then
  call('HSET', KEYS[4], 'left', '1')
  call('ZADD', KEYS[2], seconds(micros()), ARGV[1])
elseif was == 1 then
  call('DEL', KEYS[4])
end
return n
