-- Writes a value unless a larger fence has written before.
--
-- KEYS[1]  a hash: value, fence
-- ARGV[1]  value
-- ARGV[2]  fence, decimal without leading zeros
--
-- Returns {code, fence in the key}:
--    1  written
--    0  refused: the key holds a larger fence

local function larger(a, b)
  -- Decimal strings, since doubles are exact to 2^53 only.
  if #a ~= #b then
    return #a > #b
  end
  return a > b
end

local seen = redis.call('HGET', KEYS[1], 'fence')
if seen and larger(seen, ARGV[2]) then
  return {0, seen}
end
redis.call('HSET', KEYS[1], 'value', ARGV[1], 'fence', ARGV[2])
return {1, ARGV[2]}
