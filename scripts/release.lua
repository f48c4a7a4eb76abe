-- Leaves one entry of a hold. Leaving the last one releases the lock: it is handed to the first
-- waiter, or that waiter is called. See wake in handoff.lua.
--
-- KEYS[1], KEYS[2], KEYS[3]  the lock and its queue: see queue.lua
-- KEYS[4]  the fencing token: integer
-- ARGV[1]  owner
-- ARGV[2]  hold: the entry to leave; the count becomes hold - 1; 1 for an owner that shares the
--          lock
-- ARGV[3]  the channel on which Redisson's waiters hear of a release
-- ARGV[4]  the owner's waiter, which leaves the queue; absent if it has none; '' if the owner
--          shares the lock and also has other locks
-- ARGV[5]  the waiter's entry, if it is queued again instead; '' if it is not
-- ARGV[6]  'all' to release the holds of the waiter's successors, too; only those of earlier
--          attempts if the owner is a successor
--
-- Reply    left: the count that is left, or -1 if the owner did not hold that entry
--          {left, open}  if the waiter is queued again: open is 1 if the waiter could have the lock
--                        now, because the lock is free and the waiter is first in the queue;
--                        otherwise 0
--
-- The count is set, not subtracted from, so a repeated call changes nothing. The last entry deletes
-- at once, without a write that a node out of memory would refuse.
local left, hands, released = 0, false, false -- hands: the lock may be handed over
local share -- the end of the owner's share

-- freed notifies Redisson's waiters. It returns whether the lock may be handed over: only if none
-- of them listens. If one does, it races for the lock with the first waiter. The lock is released
-- even if the user may not publish.
local function freed()
  released = true
  return redis.pcall('publish', ARGV[3], '00') == 0
end

if ARGV[2] == '1' then
  local held = redis.call('hget', KEYS[1], ARGV[1])
  if not held then
    left = -1
  elseif #held <= 12 then
    redis.call('hdel', KEYS[1], ARGV[1], 'mode')
    hands = freed()
  else -- others may share the lock: see holds.lua
    redis.call('hdel', KEYS[1], ARGV[1])
    share = tonumber(held)
  end
else
  left = ARGV[2] - 1
  if tonumber(redis.call('hget', KEYS[1], ARGV[1]) or 0) <= left then
    left = -1
  else
    redis.call('hset', KEYS[1], ARGV[1], left)
  end
end

-- Waiters for a fair lock of Redisson's do not listen to its channel. Their queue is another key,
-- to which a user may have no access. EXISTS counts a key once for each time it is named, so the
-- sum tells which keys exist: 1 the queue, 2 the lock, 4 Redisson's queue.
local waiter, fair = ARGV[4] ~= '' and ARGV[4], 'redisson_lock_queue' .. string.sub(ARGV[3], 23)
local there = not waiter and redis.pcall('exists', KEYS[2], KEYS[1], KEYS[1], fair, fair, fair, fair)
if type(there) == 'table' then
  there = redis.call('exists', KEYS[2], KEYS[1], KEYS[1])
end
if there == 0 or there == 2 then -- nobody waits
  if not share then
    return left
  end
  local fields = redis.call('hlen', KEYS[1])
  if fields <= 1 then -- only the mode is left
    redis.call('del', KEYS[1])
    freed()
    return left
  elseif fields ~= 16 then -- 16 is FEW in queue.lua
    local time = redis.call('time')
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    -- include ending.lua
    if not over then -- otherwise look drops the shares that are over
      return left
    end
  end
end

-- include queue.lua
-- include handoff.lua
local now = clock()
local lends = ARGV[4] == '' or not share and not waiter -- see admit
if there == 1 and not share then -- most contended releases end here
  wake(nil, now, hands, false, lends)
  return left
end

-- include holds.lua
-- include join.lua
-- include leaving.lua
if share then
  -- The key ends with the last share, which may be the one that was released.
  local fields, before = redis.call('hlen', KEYS[1]), redis.call('pttl', KEYS[1])
  if fields == FEW or fields > 1 and share + 1 >= now + before and looks(fields) then
    local held, shared = look()
    if held and held[1] then
      local ms = math.max(expiry(held, shared) - 1, 1)
      redis.call('pexpire', KEYS[1], ms)
      -- include earlier.lua
    end
  end
  if redis.call('hlen', KEYS[1]) <= 1 then -- only the mode is left
    redis.call('del', KEYS[1])
    hands = freed()
  elseif not waiter and redis.call('hlen', KEYS[1]) > FEW then
    return left -- waiters that may share the lock know that already
  end
end
local rejoins = waiter and ARGV[5] ~= ''
local led = false -- the waiter led the queue, and leaves
if rejoins then
  join(waiter, string.match(ARGV[5], ' (.*)$'), now)
elseif waiter then
  led = leads(waiter)
  drop(waiter)
  if ARGV[6] == 'all' then
    removeSuccessors(waiter, ARGV[3], ARGV[1])
  end
end
-- A waiter that yields is not called by its own yield: it would return at once, to the same
-- outcome.
local open = serveQueue(waiter, now, hands, led, lends) and rejoins and 1 or 0
if rejoins and open == 0 then
  forget(waiter)
end
if released and redis.call('exists', KEYS[1]) == 0 then
  tellFair(ARGV[3])
end
return rejoins and {left, open} or left
