-- Raises the fencing token to that of the quorum, for a holder that got a lower one here.
--
-- KEYS[1]  the lock: hash, owner -> hold count
-- KEYS[2]  the fencing token: integer
-- ARGV[1]  owner
-- ARGV[2]  TTL of the lock, ms
-- ARGV[3]  the token that the owner got at this node
-- ARGV[4]  the token to raise to
--
-- Reply    1 raised, 0 not: the owner does not hold, or somebody else has counted since
--
-- Without the check of the token a late raise could run while another owner holds the lock, and the next
-- grant could get the same token as that owner.
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return 0
end
if tonumber(redis.call('get', KEYS[2]) or 0) ~= tonumber(ARGV[3]) then
  return 0
end
-- Kept for as long as acquire.lua would keep it.
local now = redis.call('time')
local ahead = math.max(0, ARGV[4] / 1000 - now[1] * 1000)
redis.call('set', KEYS[2], ARGV[4], 'px', string.format('%.0f', ARGV[2] + 86400000 + ahead))
return 1
