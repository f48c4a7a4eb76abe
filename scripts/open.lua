-- Releases a lock for which clients of Redisson's may be waiting. They do not know the queue, and
-- some do not subscribe to a channel, but ask again after a while. So a release sometimes leaves
-- the lock free for a moment, the window, in which no waiter of the queue may have it.
--
-- KEYS[1], KEYS[2], KEYS[3]  the lock and its queue: see queue.lua
-- KEYS[4]  the fencing token: integer; kept for ten years from now on if clients of Redisson's have
--          been observed
-- ARGV[1]  owner, which does not share the lock
-- ARGV[2]  the channel on which Redisson's waiters hear of a release
-- ARGV[3]  window, ms: how long the lock is left free. 0: the lock is for the first in the queue
--          even if Redisson's clients listen; it is handed over, or the first is called, and
--          Redisson's clients are not. Negative: the window is its absolute value, and no client of
--          Redisson's has been observed yet
-- ARGV[4]  an owner for the entry that keeps the waiters out during the window
-- ARGV[5]  the owner's waiter, which leaves the queue; '' if it has none
-- ARGV[6]  'all' to release the holds of the waiter's successors, too; only those of earlier
--          attempts if the owner is a successor
--
-- Reply    0, or -1 if the owner did not hold the lock. With a window of 0, a free lock is handed
--          to the first in the queue even then
--
-- The message is a zero of three digits, and one digit more for each ms of the window: Redisson
-- reads them all as 0. '2' has no meaning to Redisson. To this library's clients it means that the
-- lock was for one of them, and that more of them wait.
local held = redis.call('hexists', KEYS[1], ARGV[1]) == 1
-- include queue.lua
-- include holds.lua
-- include join.lua
-- include handoff.lua
-- include leaving.lua
local now, window = clock(), math.abs(ARGV[3])
local free = held and removeHold(ARGV[1])
local led = false
if ARGV[5] ~= '' then
  led = leads(ARGV[5])
  drop(ARGV[5])
  if ARGV[6] == 'all' then
    removeSuccessors(ARGV[5], ARGV[2], ARGV[1])
  end
end
if not free then
  serveQueue(nil, now, window == 0, led)
  return held and 0 or -1
end
if window > 0 then
  local two = front(nil, now)
  join(ARGV[4], string.format('0 %.0f 0 ', window), now)
  if two[1] then
    tell('turn', two[1]) -- it asks, and learns when the window ends
  end
else
  wake(nil, now, true, false, true)
end
-- A fenced lock of Redisson's counts on from this token, and does not extend its key. It must not
-- start again at 1.
if tonumber(ARGV[3]) >= 0 and redis.call('pttl', KEYS[4]) >= 0 then
  redis.call('pexpire', KEYS[4], '315360000000')
end
-- Redisson's clients sleep while the lock is for our waiters. But if it was handed to the last of
-- them and that one is dead, nobody would wake Redisson's clients.
if window == 0 and redis.call('exists', KEYS[2]) == 1 then
  redis.pcall('publish', ARGV[2], '2')
  return 0
end
redis.pcall('publish', ARGV[2], string.rep('0', 3 + window))
tellFair(ARGV[2])
return 0
