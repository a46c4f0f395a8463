-- Takes what has come into a queue, and tells when that was by this server.
-- KEYS 1 the queue
-- ARGV 1 how many at most
-- return seconds, microseconds, messages
local now = redis.call('TIME')
return {now[1], now[2], redis.call('RPOP', KEYS[1], ARGV[1]) or {}}
