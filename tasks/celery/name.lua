-- name: writes the suspect that is about to run into the replica's entry.
-- KEYS 1 replicas 2 own entry
-- ARGV 1 instance 2 tag of the suspect
-- returns 1, or 0 if this instance is not registered
if not call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
call('HSET', KEYS[2], 'suspect', ARGV[2])
return 1
