-- Takes a waiter out of the line, and passes its turn on.
--
-- KEYS[1]  the lock
-- KEYS[2], KEYS[3]  the line: see line.lua
-- ARGV[1]  waiter
--
-- Reply    1 it stood in line, 0 it did not
-- include line.lua
local stood = drop(ARGV[1])
if redis.call('exists', KEYS[2]) == 1 and redis.call('exists', KEYS[1]) == 0 then
  wake(nil, clock())
end
return stood
