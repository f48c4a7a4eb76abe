-- Raises the fencing token of a slot to that of the quorum, for a holder that got a lower one here:
-- see raise.lua.
--
-- KEYS[1] to KEYS[5]  the semaphore: see slots.lua
-- ARGV[1]  owner
-- ARGV[2]  TTL of the hold, ms
-- ARGV[3]  the token that the owner got at this node
-- ARGV[4]  the token to raise to
--
-- Reply    1 raised, 0 not: the owner has no slot, its hold is over, or the token has changed since
local slot, ends = redis.call('zscore', KEYS[5], ARGV[1]), redis.call('zscore', KEYS[1], ARGV[1])
local now = redis.call('time')
if not slot or not ends or tonumber(ends) < now[1] * 1000 + math.floor(now[2] / 1000) then
  return 0
end
slot = string.format('%.0f', tonumber(slot))
if tonumber(redis.call('hget', KEYS[4], slot) or 0) ~= tonumber(ARGV[3]) then
  return 0
end
redis.call('hset', KEYS[4], slot, ARGV[4])
local keep = ARGV[2] + 86400000 + math.max(0, math.floor(ARGV[4] / 1000) - now[1] * 1000)
if redis.call('pttl', KEYS[4]) < keep then
  redis.call('pexpire', KEYS[4], string.format('%.0f', keep))
end
return 1
