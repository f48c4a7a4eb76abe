-- Releases the lock, whoever holds it, and wakes the first in line.
--
-- KEYS[1]  the lock: hash, owner -> hold count
-- KEYS[2], KEYS[3]  the line: see line.lua
-- ARGV[1]  the channel that tells Redisson's waiters of a release
--
-- Reply    1 released, 0 nobody held it
if redis.call('del', KEYS[1]) == 0 then
  return 0
end
-- include line.lua
redis.pcall('publish', ARGV[1], '0') -- it is released, whether that may be told or not
wake(nil, clock())
return 1
