-- Keeps the fencing token for a day longer than a lock that is renewed. Not a script of its own:
-- scripts include it, with these locals:
--
-- key, ms  the key of the token, and the TTL of the lock in milliseconds
local left = redis.call('pttl', key)
if left >= 0 and left < ms + 86400000 then
  -- Two hours longer than needed, so that this is seldom done.
  redis.call('pexpire', key, string.format('%.0f', ms + 93600000))
end
