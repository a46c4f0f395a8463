-- store: stores a result as Celery stores it: never over a SUCCESS, the key
-- before the message on the channel of the same name, the same bytes.
-- KEYS 1 the result's key
-- ARGV 1 the result 2 its TTL in seconds, 0 for ever
-- returns 1 stored, 0 there is a SUCCESS already
if succeeded(KEYS[1]) then return 0 end
if ARGV[2] == '0' then
  redis.call('SET', KEYS[1], ARGV[1])
else
  redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
end
redis.call('PUBLISH', KEYS[1], ARGV[1])
return 1
