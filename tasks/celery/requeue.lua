-- requeue: sends dead letters again, each in the same step in which it leaves
-- its stream. Whoever comes second finds it gone.
-- KEYS 1 stream of the dead letters; then per letter the list it goes to
-- ARGV per letter: id, message
-- returns per letter 1 sent, 0 gone
-- What may be refused is called before anything is changed.
call('XDEL', KEYS[1], '0-1')
local done = {}
for i = 1, #KEYS - 1 do
  local id = ARGV[2 * i - 1]
  done[i] = #call('XRANGE', KEYS[1], id, id)
  if done[i] == 1 then
    call('LPUSH', KEYS[1 + i], ARGV[2 * i])
    call('XDEL', KEYS[1], id)
  end
end
return done
