-- settle: ends deliveries that do more than an ack: put back, parked, sent
-- again, kept as a dead letter. Also what a takeover does with the entries of
-- a dead replica.
-- KEYS 1 unacked 2 unacked_index 3 parked 4 park info 5 replicas
-- ARGV 1 TTL of results (s, 0 for ever) 2 database of the results, '' if the
--      broker's 3 database of the broker 4 prefix of our keys 5 bound of dead
--      letters 6 their age (ms) 7 an instance that must not be alive, '' for
--      none; then per operation: JSON, result ('' for none), raw, where JSON
--      has tag ('' acts in any case), key (of the result), act: ack | push |
--      park; for push: list, side R (taking end) or L; for park see the
--      prelude; dead: a dead letter made of keep, or of raw where there is none
-- returns {1, per operation 1 done, 2 done and its dead letter kept beside the
--      stream, or 0 not ours} or {-1} if that instance is alive
local keys = {unacked = KEYS[1], index = KEYS[2], parked = KEYS[3], info = KEYS[4]}
local own, max, age = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
if ARGV[7] ~= '' and call('ZSCORE', KEYS[5], ARGV[7]) then return {-1} end
local now = micros()

local ops, done = {}, {}
for i = 8, #ARGV, 3 do
  local o = cjson.decode(ARGV[i])
  o.result, o.raw = ARGV[i + 1], ARGV[i + 2]
  o.mine = o.tag == '' or call('HEXISTS', keys.unacked, o.tag) == 1
  ops[#ops + 1] = o
  done[#done + 1] = o.mine and 1 or 0
end

if ARGV[2] ~= '' then call('SELECT', ARGV[2]) end
for _, o in ipairs(ops) do
  if o.mine and o.result ~= '' then store(o.key, o.result, ARGV[1]) end
end
if ARGV[2] ~= '' then call('SELECT', ARGV[3]) end

for i, o in ipairs(ops) do
  if o.mine then
    if o.dead and not dead_letter(own, max, age, now, o.dead, o.raw) then done[i] = 2 end
    if o.act == 'push' then
      call(o.side == 'L' and 'LPUSH' or 'RPUSH', o.list, o.raw)
    elseif o.act == 'park' and (o.tag ~= '' or call('HEXISTS', keys.unacked, o.ptag) == 0) then
      park(keys, o, o.raw)
    end
    if o.tag ~= '' then
      call('HDEL', keys.unacked, o.tag)
      call('ZREM', keys.index, o.tag)
    end
  end
end
return {1, done}
