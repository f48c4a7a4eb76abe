-- Leaves a hold of the lock, and releases the lock with the last one.
--
-- KEYS[1]  the lock: hash, owner -> hold count
-- ARGV[1]  owner
-- ARGV[2]  hold: the entry to leave, which brings the count to hold - 1
-- ARGV[3]  the channel that tells of a release
--
-- Reply    the count that is left, or -1: the owner does not hold that entry
--
-- The count is set, not subtracted from: the same call twice changes nothing the second time. The
-- last entry deletes at once, without a write that a node out of memory would refuse.
local left = tonumber(ARGV[2]) - 1
local count = tonumber(redis.call('hget', KEYS[1], ARGV[1]) or 0)
if count <= left then
  return -1
end
if left > 0 then
  redis.call('hset', KEYS[1], ARGV[1], left)
  return left
end
redis.call('del', KEYS[1])
redis.call('publish', ARGV[3], '0')
return 0
