-- Takes a waiter out of the queue, and calls the next one if its turn has come.
--
-- KEYS[1], KEYS[2], KEYS[3]  the lock and its queue: see queue.lua
-- ARGV[1]  waiter
-- ARGV[2]  'all' to release the holds of its successors, too; otherwise 'none'
-- ARGV[3]  the channel on which Redisson's waiters hear of a release
-- ARGV[4]  `<attempt> <cell>`: the number of the waiter's last attempt, and the cell; may be absent
--
-- Reply    1 it was queued, 0 it was not
-- include queue.lua
-- include holds.lua
-- include handoff.lua
-- include leaving.lua
local first = leads(ARGV[1])
local wasQueued = drop(ARGV[1])
if ARGV[2] == 'all' then
  removeSuccessors(ARGV[1], ARGV[3], ARGV[4])
end
if redis.call('exists', KEYS[2]) == 0 then
  redis.pcall('hdel', KEYS[3], 'served')
  return wasQueued
end
serveQueue(nil, clock(), false, first)
return wasQueued
