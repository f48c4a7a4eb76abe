-- Reads the state of a lock at one instant.
--
-- KEYS[1]  the lock: hash, owner -> hold count
-- KEYS[2]  the line: zset, waiter scored by its ticket
-- KEYS[3]  the fencing token: integer
-- ARGV[1]  how many of the line to name
--
-- Reply    {owner, hold count, pttl, token, waiters, line}: owner '' if the lock is free, pttl negative
--          if the key has no expiry, token '0' if no token was given out lately, the number of those
--          who wait, and the first of them in their order, each followed by its ticket
local hold = redis.call('hgetall', KEYS[1])
return {
  hold[1] or '', hold[2] or '0', redis.call('pttl', KEYS[1]), redis.call('get', KEYS[3]) or '0',
  redis.call('zcard', KEYS[2]), redis.call('zrange', KEYS[2], 0, ARGV[1] - 1, 'withscores')
}
