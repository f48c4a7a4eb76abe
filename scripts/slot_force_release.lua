-- Releases all slots of a semaphore for all their owners, and calls the first waiters.
--
-- KEYS[1] to KEYS[5]  the semaphore: see slots.lua
--
-- Reply    1 released, 0 nobody had a slot
-- include queue.lua
-- include holds.lua
-- include slots.lua
local wrong = check()
if wrong then
  return wrong
end
local now = clock()
prune(now)
local owners = redis.call('zrangebyscore', KEYS[5], 0, '+inf')
for i = 1, #owners do
  give(owners[i])
  if i <= 100 then -- the others refresh by themselves
    serve(nil, now, false)
  end
end
return #owners > 0 and 1 or 0
