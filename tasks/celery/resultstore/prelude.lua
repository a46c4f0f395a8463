-- prelude: what both scripts share; it is put in front of each. It reads no KEYS
-- and no ARGV, and returns nothing.

-- succeeded: whether a key holds a SUCCESS. The usual layout is read by its
-- first bytes, any other one is parsed.
local function succeeded(key)
  local value = redis.pcall('GET', key)
  if type(value) ~= 'string' then return false end
  local status = string.match(value, '^{"status": ?"(%u+)"')
  if status then return status == 'SUCCESS' end
  if string.sub(value, 1, 1) ~= '{' then return false end
  local ok, doc = pcall(cjson.decode, value)
  return ok and type(doc) == 'table' and doc.status == 'SUCCESS'
end
