-- due: puts parked messages whose time has come back to their lists, each
-- once, whichever replica calls.
-- KEYS 1 unacked 2 unacked_index 3 parked 4 park info
-- ARGV 1 most messages a call
-- returns {number put back, instant of the next one (µs, '' for none), now (µs)}
local keys = {unacked = KEYS[1], index = KEYS[2], parked = KEYS[3], info = KEYS[4]}
local now = micros()
local tags = call('ZRANGEBYSCORE', keys.parked, '-inf', whole(now), 'LIMIT', 0, ARGV[1])
local n = 0
-- The list is served from its right end, so the earliest one goes there last.
for i = #tags, 1, -1 do
  if take_out(keys, tags[i], now) then n = n + 1 end
end
local next = call('ZRANGE', keys.parked, 0, 0, 'WITHSCORES')
return {n, next[2] and whole(tonumber(next[2])) or '', whole(now)}
