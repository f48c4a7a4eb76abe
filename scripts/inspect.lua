-- Reads the state of a lock at one instant.
--
-- KEYS[1]  the lock: hash, owner -> hold count
-- KEYS[2]  the fencing token: integer
--
-- Reply    {owner, hold count, pttl, token}: owner '' if the lock is free, pttl negative if the key
--          has no expiry, token '0' if no token was given out lately
local hold = redis.call('hgetall', KEYS[1])
return {hold[1] or '', hold[2] or '0', redis.call('pttl', KEYS[1]), redis.call('get', KEYS[2]) or '0'}
