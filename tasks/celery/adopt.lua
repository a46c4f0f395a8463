-- adopt: buries instances that have entries in unacked and are in no registry,
-- since the registry lost its data. No death is counted.
-- KEYS 1 replicas 2 buried
-- ARGV 1 prefix of entry keys 2 lists to sweep, as JSON; then the instances
-- returns the number adopted
local n = 0
for i = 3, #ARGV do
  local id = ARGV[i]
  if not call('ZSCORE', KEYS[1], id) and not call('ZSCORE', KEYS[2], id) then
    call('ZADD', KEYS[2], seconds(micros()), id)
    call('HSET', ARGV[1] .. id, 'left', '1', 'lists', ARGV[2])
    n = n + 1
  end
end
return n
