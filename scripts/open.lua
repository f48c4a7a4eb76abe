-- Releases a lock where clients of Redisson's may be waiting. They do not know the queue, and not all of them have subscribed to a
-- channel: some ask again after a while. So now and then the lock is left free for a moment, and nobody who is queued may have it.
--
-- KEYS[1], KEYS[2], KEYS[3]  the lock and its queue: see queue.lua
-- KEYS[4]  the fencing token: integer; kept for ten years from now on if clients of Redisson's have been met
-- ARGV[1]  owner, which does not share the lock
-- ARGV[2]  the channel that tells Redisson's waiters of a release
-- ARGV[3]  window, ms: for how long the lock is left free; 0 if it is for the first in the queue, whoever listens: it is handed
--          over, or the first is called and Redisson's clients are not. Negative if no client of Redisson's has been met yet
-- ARGV[4]  an owner for the entry that keeps the others out during the window
-- ARGV[5]  the owner's waiter, which leaves the queue; '' if it has none
-- ARGV[6]  'all' to release what the waiter's successors have, too; only of earlier attempts if the owner is a successor
--
-- Reply    0, or -1 if the owner did not hold the lock. With a window of 0, a free lock is handed to the first in the queue even then
--
-- The message is a zero of three digits, and one more for each ms of the window: all of them are 0 to Redisson. '2' means nothing to
-- Redisson. It tells this library's clients that the lock was for one of them, and that more of them wait.
local held = redis.call('hexists', KEYS[1], ARGV[1]) == 1
-- include queue.lua
-- include holds.lua
-- include join.lua
-- include handoff.lua
-- include leaving.lua
local now, window = clock(), math.abs(ARGV[3])
local free = held and giveBack(ARGV[1])
local stood = false
if ARGV[5] ~= '' then
  stood = leads(ARGV[5])
  drop(ARGV[5])
  if ARGV[6] == 'all' then
    takeBack(ARGV[5], ARGV[2], ARGV[1])
  end
end
if not free then
  pass(nil, now, window == 0, stood)
  return held and 0 or -1
end
if window > 0 then
  local two = front(nil, now)
  join(ARGV[4], string.format('0 %.0f 0 ', window), now)
  if two[1] then
    tell('turn', two[1]) -- it comes, and hears when the window is over
  end
else
  wake(nil, now, true, false, true)
end
-- A fenced lock of Redisson's counts on from this token, and does not make its key last longer. It must not start again at 1.
if tonumber(ARGV[3]) >= 0 and redis.call('pttl', KEYS[4]) >= 0 then
  redis.call('pexpire', KEYS[4], '315360000000')
end
-- Redisson's clients sleep while the lock is for our waiters. But if it was handed to the last of them, and that one is dead, nobody
-- would wake them.
if window == 0 and redis.call('exists', KEYS[2]) == 1 then
  redis.pcall('publish', ARGV[2], '2')
  return 0
end
redis.pcall('publish', ARGV[2], string.rep('0', 3 + window))
tellFair(ARGV[2])
return 0
