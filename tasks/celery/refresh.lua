-- refresh: moves the scores of what is held into the future, so that nobody
-- restores it. Tags that are gone stay gone.
-- KEYS 1 unacked_index
-- ARGV 1 lead (s); then the tags
-- returns nothing of use
local score = seconds(micros() + ARGV[1] * 1000000)
local z = {}
for i = 2, #ARGV do
  z[#z + 1] = score
  z[#z + 1] = ARGV[i]
end
return call('ZADD', KEYS[1], 'XX', unpack(z))
