-- forget: takes a result back, so that its task is PENDING again. A SUCCESS
-- stays: it is what the task has done.
-- KEYS 1 the result's key
-- ARGV none
-- returns 1 forgotten, 0 there is none, or a SUCCESS
if succeeded(KEYS[1]) then return 0 end
return redis.call('DEL', KEYS[1])
