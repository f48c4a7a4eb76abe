-- The queue of waiters at one lock. Not a script of its own: scripts with these keys include it,
-- and those of the other files that they need. Creating a function takes time even if it is never
-- called, so this file has only functions that most scripts call.
--
-- KEYS[1]  the lock: hash, see holds.lua
-- KEYS[2]  the queue: zset, waiter scored by its ticket
-- KEYS[3]  the waiters' entries: hash, waiter -> its stored entry (see below); and 'served' -> a
--          ticket: see sharers.lua
--
-- A waiter is `<client>:<n>`. It sends its entry as `<waiter> <ticket> <ms> <callers> <successor>`:
--
-- - The ticket is the time of the call in µs. '?' follows if it is unsure, because the client has
--   read the clocks of too few nodes. (A refusal reports the node's clock to a waiter.)
-- - The entry is kept for ms without a refresh.
-- - The callers are a number. 's' follows if the waiter wants a share; then `<first>-<last>` if it
--   has a successor and other cells in that range may lead to the same server, and 'm' if it also
--   waits for other locks. 't' follows for a TryLock that wants the lock for itself and has met no
--   other contender: sharers need not wait for it, since it may soon be over.
-- - The successor is empty, or `<TTL> <cell> <attempt> <secret>`. When the waiter's turn comes, the
--   lock may then be granted to the owner `<waiter>/<attempt>.<cell>` for TTL ms. The cell is the
--   waiter's number for this lock at this node.
--
-- The stored entry is `<deadline> <callers>`, or `<deadline> <callers> <time of the refresh>
-- <successor>`, with times in ms of the node's clock. An entry of 0 callers is no waiter, but a
-- window's: it keeps a free lock from all waiters for a moment, see open.lua.
-- `,<ticket>` follows the deadline of an overdue first once a waiter has called the others: see
-- callFirst in join.lua.
--
-- The client hears on the channel quorumlock_wake:<client>:
--   handoff <waiter> <attempt> <cell> <token> <proof> <lock>   the lock is the successor's
--   turn <waiter> <lock>   the lock is free and the waiter may be first in the queue
--   slot <waiter> <slot> <lock>   the same for a semaphore: this slot has been released
--   next <waiter> <lock>   refresh more often: those before the waiter are few, or may be dead
--
-- The proof shows that a handoff comes from the node: it is a SHA-1 of the handoff and the waiter's
-- secret, which only those who may read the lock's keys can know.
--
-- On Redisson's channel of the lock a release publishes a zero, as Redisson does, but with two
-- digits or more: so this library recognizes its own releases. Redisson reads a number. See also
-- earlier.lua.
local CLAIM = 1000     -- ms that a called waiter has to come; longer than between refreshes
-- ms after which a called first waiter that has not come is presumed dead, and others are called
local OVERDUE = 650
-- ms after a waiter's refresh in which it may be handed the lock; longer than between refreshes
local FRESH = 650
local FEW = 16         -- fields of a shared lock: most calls read no more
local STRETCHED = 2500 -- ms: a waiter with a later deadline refreshes seldom

local function clock()
  local t = redis.call('time')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- drop removes a waiter from the queue. alone tells whether the waiter gets the lock for itself. If
-- so, the waiters that want shares must be called again afterwards.
local function drop(waiter, alone)
  local wasQueued = redis.call('zrem', KEYS[2], waiter)
  if wasQueued == 1 then
    redis.call('hdel', KEYS[3], waiter, alone and 'served' or waiter)
  end
  return wasQueued
end

local function deadline(stored)
  return tonumber(string.match(stored or '', '^%d+') or 0)
end

-- isNobody tells whether an entry is a window's, which keeps out all waiters: see open.lua.
local function isNobody(stored)
  return string.find(stored or '', '^%S+ 0') ~= nil
end

local function wantsShare(stored)
  return string.find(stored or '', '^%S+ %d+s') ~= nil
end

-- front returns the first two in the queue, and their stored entries. It first drops the waiters
-- before them that are past their deadlines, except me.
local function front(me, now)
  while true do
    local two = redis.call('zrange', KEYS[2], 0, 1)
    if not two[1] then
      redis.pcall('hdel', KEYS[3], 'served')
      return two, {}
    end
    local stored = redis.call('hmget', KEYS[3], two[1], two[2] or two[1])
    if two[1] == me or deadline(stored[1]) > now then
      return two, stored
    end
    local some, dead = redis.call('zrange', KEYS[2], 0, 99), {}
    local entries = redis.call('hmget', KEYS[3], unpack(some))
    for i = 1, #some do
      if some[i] == me or deadline(entries[i]) > now then
        break
      end
      dead[i] = some[i]
    end
    redis.call('zrem', KEYS[2], unpack(dead))
    redis.call('hdel', KEYS[3], unpack(dead))
  end
end

-- tell must not fail: without the permission to publish, waiters rely on their refresh.
local function tell(what, waiter, more)
  local client = string.match(waiter, '^(.*):')
  if client then
    redis.pcall('publish', 'quorumlock_wake:' .. client, what .. ' ' .. waiter .. ' ' .. (more or '') .. KEYS[1])
  end
end

-- summon calls a waiter: its turn may have come. It then has CLAIM ms to come. slot is nil if the
-- waiter need not know which slot was released.
local function summon(waiter, stored, now, slot)
  if deadline(stored) > now + CLAIM then
    redis.call('hset', KEYS[3], waiter, (string.gsub(stored, '^%S+', string.format('%.0f', now + CLAIM))))
  end
  tell(slot and 'slot' or 'turn', waiter, slot and slot .. ' ')
end
