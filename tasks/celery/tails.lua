-- tails: a digest of the message that each list gives out next. The messages
-- themselves, of up to megabytes, stay where they are.
-- KEYS the lists
-- returns {digest of the right end, '' if the list is empty} in their order
local out = {}
for i, key in ipairs(KEYS) do
  local tail = redis.call('LINDEX', key, -1)
  out[i] = tail and redis.sha1hex(tail) or ''
end
return out
