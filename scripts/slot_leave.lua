-- Takes a waiter out of the queue of a semaphore, and calls the next one if its turn has come.
--
-- KEYS[1] to KEYS[5]  the semaphore: see slots.lua
-- ARGV[1]  waiter
-- ARGV[2]  'all' to release the slot of its successor, too; otherwise 'none'
--
-- Reply    1 it was queued, 0 it was not
-- include queue.lua
-- include holds.lua
-- include slots.lua
local wasQueued = drop(ARGV[1])
local successor = ARGV[2] == 'all' and successorOf(ARGV[1])
if successor then
  give(successor)
end
if redis.call('exists', KEYS[2]) == 1 then
  serve(nil, clock(), false)
end
return wasQueued
