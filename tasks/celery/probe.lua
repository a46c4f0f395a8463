-- probe: tries on probe keys what the other scripts need.
-- KEYS 1 a key on the broker 2 a key of results
-- ARGV 1 database of the results, '' if the broker's 2 database of the broker
-- returns {} or, for the first command that the server refuses, {command,
--      what the server says}
local steps = {{'SET', KEYS[1], '1', 'EX', '5'}, {'PUBLISH', KEYS[1], '1'}}
local function add(step) steps[#steps + 1] = step end
if ARGV[1] ~= '' then add({'SELECT', ARGV[1]}) end
add({'GET', KEYS[2]})
add({'SET', KEYS[2], '1', 'EX', '5'})
add({'PUBLISH', KEYS[2], '1'})
add({'DEL', KEYS[2]})
if ARGV[1] ~= '' then add({'SELECT', ARGV[2]}) end
add({'DEL', KEYS[1]})
for _, step in ipairs(steps) do
  local r = redis.pcall(unpack(step))
  if type(r) == 'table' and r.err then return {step[1], r.err} end
end
return {}
