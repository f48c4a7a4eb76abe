-- Releases the lock for all its owners, and wakes the first in the queue. A key that is no lock
-- stays.
--
-- KEYS[1], KEYS[2], KEYS[3]  the lock and its queue: see queue.lua
-- ARGV[1]  the channel on which Redisson's waiters hear of a release
--
-- Reply    1 released, 0 nobody held it
-- include queue.lua
-- include holds.lua
-- include handoff.lua
-- include leaving.lua
local held, err = look()
if not held then
  return err
elseif not held[1] then
  return 0
end
redis.call('del', KEYS[1])
redis.pcall('publish', ARGV[1], '00') -- released even if the user may not publish
tellFair(ARGV[1])
wake(nil, clock())
return 1
