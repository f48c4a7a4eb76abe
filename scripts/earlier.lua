-- Tells Redisson's waiters that the lock expires earlier than they were told. They sleep until that
-- time. Not a script of its own: scripts include it after they have set the expiry, with these
-- locals:
--
-- KEYS[1]     the lock
-- before, ms  its time to live in milliseconds: what it was, and what it is now
--
-- Redisson reads the messages as 0 and 1. 0 lets one thread of each JVM ask, and counts even if the
-- thread is about to sleep. 1 wakes all sleeping threads, since the one that asks might give up
-- before the lock ends. A difference of up to 100 ms is not worth their requests.
if before > ms + 100 then
  -- include fair.lua
  local channel = 'redisson_lock__channel:' .. (string.find(KEYS[1], '{', 1, true) and KEYS[1] or '{' .. KEYS[1] .. '}')
  redis.pcall('publish', channel, '00')
  redis.pcall('publish', channel, '01')
  tellFair(channel)
end
