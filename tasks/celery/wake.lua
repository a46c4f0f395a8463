-- wake: brings the oldest message of each line forward and gives the next one
-- its timer.
-- KEYS 1 unacked 2 unacked_index 3 parked 4 park info; then the lines
-- ARGV none
-- returns the number of messages put back
local keys = {unacked = KEYS[1], index = KEYS[2], parked = KEYS[3], info = KEYS[4]}
local n, now = 0, nil
for i = 5, #KEYS do
  while true do
    local tag = call('ZRANGE', KEYS[i], 0, 0)[1]
    if not tag then break end
    now = now or micros()
    if take_out(keys, tag, now) then
      n = n + 1
      break
    end
    call('ZREM', KEYS[i], tag) -- its traces may be gone; the line must shrink
  end
end
return n
