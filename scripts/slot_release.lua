-- Releases a slot of a semaphore.
--
-- KEYS[1] to KEYS[5]  the semaphore: see slots.lua
-- ARGV[1]  owner
-- ARGV[2], ARGV[3]  not used: see release.lua
-- ARGV[4]  the owner's waiter, which leaves the queue; absent if it has none
-- ARGV[5]  the waiter's entry, if it is queued again instead; '' if it is not
-- ARGV[6]  'all' to release the slot of the waiter's successor, too; only that of an earlier
--          attempt if the owner is a successor
--
-- Reply    0, or -1 if the owner had no slot
--          {0 or -1, open} if the waiter is queued again: open is 0, or one more than a free slot
--          if the waiter could have it now
-- include queue.lua
-- include holds.lua
-- include join.lua
-- include successor.lua
-- include slots.lua
local slot = give(ARGV[1])
local left = slot and 0 or -1
local waiter = ARGV[4]
if not waiter and redis.call('exists', KEYS[2]) == 0 then
  return left
end
local now = clock()
if waiter and ARGV[5] ~= '' then
  local wrong = check()
  if wrong then
    return wrong
  end
  join(waiter, string.match(ARGV[5], ' (.*)$'), now, true)
  -- Other waiters are called, and not handed the slot: each asks every node for its preferred slot.
  if not serve(waiter, now, false) then
    return {left, 0}
  end
  local k, wish, other = wants(ARGV[5])
  return {left, 1 + vacant(k, other or wish)}
end
if waiter then
  drop(waiter)
  local successor = ARGV[6] == 'all' and successorOf(waiter)
  if successor and isSuccessor(successor, waiter, attemptOf(ARGV[1])) then
    give(successor)
  end
end
serve(nil, now, true, slot)
return left
