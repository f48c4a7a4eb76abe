-- Deletes the value of a leader, if it is that leader's.
--
-- KEYS[1]  the lock
-- KEYS[2]  the leader's value: see proclaim.lua
-- ARGV[1]  owner: the leader
-- ARGV[2]  the channel on which a new leader or value is published
--
-- Reply    1 deleted, 0 there was no value of this owner's
if redis.call('hget', KEYS[2], 'owner') ~= ARGV[1] then
  return 0
end
redis.call('del', KEYS[2])
redis.pcall('publish', ARGV[2], '')
return 1
