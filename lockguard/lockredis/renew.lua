-- Sets the full TTL of locks again, each only where its token holds it.
--
-- KEYS[i]        a lock
-- ARGV[2i-1]     its token
-- ARGV[2i]       its TTL in ms, at least 1000: PEXPIRE with 0 would delete the key
--
-- Returns one code per key:
--    1  renewed
--    0  gone: there is no such key
--   -1  taken: another token, or a key of another type

local codes = {}
for i, key in ipairs(KEYS) do
  local held = redis.pcall('GET', key)
  if held == ARGV[2 * i - 1] then
    codes[i] = redis.call('PEXPIRE', key, ARGV[2 * i])
  elseif held == false then
    codes[i] = 0
  elseif type(held) == 'table' and string.sub(held.err, 1, 9) ~= 'WRONGTYPE' then
    return held
  else
    codes[i] = -1
  end
end
return codes
