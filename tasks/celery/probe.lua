-- probe: tries on probe keys what the other scripts need.
-- KEYS 1 a key on the broker 2 a key of results
-- ARGV 1 database of the results, '' if the broker's 2 database of the broker
-- returns a status; an error names what the server refuses
redis.call('SET', KEYS[1], '1', 'EX', 5)
redis.call('PUBLISH', KEYS[1], '1')
if ARGV[1] ~= '' then redis.call('SELECT', ARGV[1]) end
redis.call('GET', KEYS[2])
redis.call('SET', KEYS[2], '1', 'EX', 5)
redis.call('PUBLISH', KEYS[2], '1')
redis.call('DEL', KEYS[2])
if ARGV[1] ~= '' then redis.call('SELECT', ARGV[2]) end
redis.call('DEL', KEYS[1])
return redis.status_reply('OK')
