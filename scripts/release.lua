-- Leaves one entry of a hold. Leaving the last one releases the lock.
--
-- KEYS[1]  the lock: hash, owner -> hold count
-- KEYS[2], KEYS[3]  the queue: see queue.lua
-- KEYS[4]  the fencing token: integer
-- ARGV[1]  owner
-- ARGV[2]  hold: the entry to leave; the count becomes hold - 1
-- ARGV[3]  the channel that tells Redisson's waiters of a release
-- ARGV[4]  the owner's waiter, which leaves the queue; absent if it has none
-- ARGV[5]  the waiter's entry, if it is queued again instead; '' if it is not
-- ARGV[6]  'all' if what was handed to the waiter's successors is released, too
--
-- Reply    left: the count that is left, or -1 if the owner did not hold that entry
--          {left, open} if the waiter is queued again: open is 1 if the lock is free and the waiter is now
--          the first in the queue, 0 if not
--
-- The count is set, not subtracted from: the same call twice changes nothing the second time. The
-- last entry deletes at once, without a write that a node out of memory would refuse.
local left, hands = 0, false
if ARGV[2] == '1' then
  if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then
    left = -1
  else
    -- It is released even if the user may not publish. If Redisson's clients wait as well, whoever comes
    -- first gets it.
    hands = redis.pcall('publish', ARGV[3], '0') == 0
  end
else
  left = ARGV[2] - 1
  if tonumber(redis.call('hget', KEYS[1], ARGV[1]) or 0) <= left then
    left = -1
  else
    redis.call('hset', KEYS[1], ARGV[1], left)
  end
end

local waiter = ARGV[4]
if not waiter and redis.call('exists', KEYS[2]) == 0 then
  return left
end

-- include queue.lua
local now = clock()
local rejoins = waiter and ARGV[5] ~= ''
local stood = false -- the waiter was the first in the queue, and leaves
if rejoins then
  join(waiter, string.match(ARGV[5], ' (.*)$'), now)
elseif waiter then
  stood = redis.call('zrange', KEYS[2], 0, 0)[1] == waiter
  drop(waiter)
  if ARGV[6] == 'all' then
    takeBack(waiter, ARGV[3])
  end
end
local open = 0
if redis.call('exists', KEYS[1]) == 1 then -- also if somebody else has written to the key that is released
  if stood then
    promote(now)
  end
elseif wake(waiter, now, hands) and rejoins then
  -- A waiter that yields is not woken by its own yield: it would come back at once, for the same outcome.
  open = 1
end
return rejoins and {left, open} or left
