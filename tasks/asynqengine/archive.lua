-- archive: what an operator does with a task in the archive: it is sent again,
-- or deleted. Both act only while it is there, so that whoever comes second
-- changes nothing.
-- KEYS 1 the task 2 the archive 3 pending
-- ARGV 1 the task's id 2 requeue | drop
-- returns 1 done, 0 it is not in the archive
if redis.call('HGET', KEYS[1], 'state') ~= 'archived' then return 0 end
if ARGV[2] == 'requeue' then
  redis.call('LPUSH', KEYS[3], ARGV[1])
  redis.call('ZREM', KEYS[2], ARGV[1])
  redis.call('HSET', KEYS[1], 'state', 'pending')
  return 1
end
redis.call('ZREM', KEYS[2], ARGV[1])
local unique = redis.call('HGET', KEYS[1], 'unique_key')
if unique and unique ~= '' and redis.call('GET', unique) == ARGV[1] then redis.call('DEL', unique) end
redis.call('DEL', KEYS[1])
return 1
