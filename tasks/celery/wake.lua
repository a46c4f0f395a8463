-- wake: brings the oldest message of each line forward and gives the next one
-- its timer.
-- KEYS 1 unacked 2 unacked_index 3 parked 4 park info; then the lines
-- ARGV none
-- returns the number of messages put back
local keys = {unacked = KEYS[1], index = KEYS[2], parked = KEYS[3], info = KEYS[4]}
local n, now = 0, micros()
for i = 5, #KEYS do n = n + bring_forward(keys, KEYS[i], now) end
return n
