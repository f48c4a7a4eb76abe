-- Gives the lock a fresh TTL, if the owner holds it.
--
-- KEYS[1]  the lock: hash, owner -> hold count
-- KEYS[2]  the fencing token: integer; kept for a day longer than the lock
-- ARGV[1]  owner
-- ARGV[2]  TTL, ms
--
-- Reply    1 renewed, 0 the owner does not hold the lock
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('pexpire', KEYS[1], ARGV[2])
local keep = ARGV[2] + 86400000
if redis.call('pttl', KEYS[2]) < keep then
  redis.call('pexpire', KEYS[2], string.format('%.0f', keep))
end
return 1
