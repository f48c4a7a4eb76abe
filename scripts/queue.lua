-- The queue of waiters at one lock. This is not a script. Scripts that have these keys include it, and whichever of the other files they
-- need. Creating a function takes time even if it is never called, so this file has only those that most scripts call.
--
-- KEYS[1]  the lock: hash, see holds.lua
-- KEYS[2]  the queue: zset, waiter scored by its ticket
-- KEYS[3]  the waiters' entries: hash, waiter -> what is stored of it (see below)
--
-- A waiter is `<client>:<n>`. It gives its entry as `<waiter> <ticket> <ms> <callers> <successor>`: the entry
-- is kept for that many ms. The ticket is the time of the call in µs. '?' follows if it is unsure: the client knows
-- the clocks of too few nodes. A refusal tells a waiter the node's clock.
-- The callers are a number. 's' follows if the waiter wants to share the lock, and then `<first>-<last>`
-- if it has a successor and other cells in that range may lead to the same server, and 'm' if it waits for other locks, too. 't' follows if it is a TryLock that wants the
-- lock to itself and has met no other contender: those who want to share need not wait for it, as it may be over in a moment.
-- The successor is empty, or `<TTL> <cell> <attempt> <secret>`: then the lock may be granted to the owner
-- `<waiter>/<attempt>.<cell>` when the waiter's turn comes, for TTL ms; the cell is the waiter's number for this lock at this
-- node. What is stored is `<deadline> <callers>`, or `<deadline> <callers> <when the waiter came> <successor>`, with times in ms
-- of the node's clock.
--
-- The client hears on the channel quorumlock_wake:<client>:
--   handoff <waiter> <attempt> <cell> <token> <proof> <lock>   the lock is the successor's
--   turn <waiter> <lock>   the lock is free and the waiter may be the first in the queue
--   slot <waiter> <slot> <lock>   the same, of a semaphore: this slot has been released
--   next <waiter> <lock>   the waiter should look more often: those before it are few, or may be dead
--
-- On Redisson's channel of the lock a release publishes a zero, as Redisson does, but with two digits: this library knows its
-- own releases by that. Redisson reads a number.
--
-- An entry of 0 callers is no waiter. It keeps a free lock from all who are queued for a moment: see open.lua.
--
-- The proof shows that the message comes from the node: it is a SHA-1 of the handoff and the waiter's secret.
-- Only those who may read the lock's keys can know the secret.
local CLAIM = 1000     -- ms in which a waiter that is called must come; longer than between refreshes
local PATIENCE = 650   -- ms after which a first waiter that was called is taken for dead, and others are called, too
local FRESH = 650      -- ms for which the lock may be handed to a waiter after it came; longer than between refreshes
local FEW = 16         -- fields of a shared lock: most calls look at all of no more
local STRETCHED = 2500 -- ms: a waiter whose deadline is further away refreshes seldom

local function clock()
  local t = redis.call('time')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function drop(waiter)
  local stood = redis.call('zrem', KEYS[2], waiter)
  if stood == 1 then
    redis.call('hdel', KEYS[3], waiter)
  end
  return stood
end

local function deadline(stored)
  return tonumber(string.match(stored or '', '^%S+') or 0)
end

-- isNobody tells whether an entry is no waiter's, but keeps the lock from all who are queued: see open.lua.
local function isNobody(stored)
  return string.find(stored or '', '^%S+ 0') ~= nil
end

local function wantsShare(stored)
  return string.find(stored or '', '^%S+ %d+s') ~= nil
end

-- front returns the first two in the queue, and what is stored of them. It first drops the waiters before them
-- whose deadline has passed, except me.
local function front(me, now)
  while true do
    local two = redis.call('zrange', KEYS[2], 0, 1)
    if not two[1] then
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

-- tell must not fail: whoever may not publish leaves the waiters to their refresh.
local function tell(what, waiter, more)
  local client = string.match(waiter, '^(.*):')
  if client then
    redis.pcall('publish', 'quorumlock_wake:' .. client, what .. ' ' .. waiter .. ' ' .. (more or '') .. KEYS[1])
  end
end

-- summon calls a waiter: its turn may have come. From now on it has CLAIM ms to come. slot is nil if the waiter need not know
-- what has been released.
local function summon(waiter, stored, now, slot)
  if deadline(stored) > now + CLAIM then
    redis.call('hset', KEYS[3], waiter, string.format('%.0f', now + CLAIM) .. string.match(stored, '^%S+(.*)$'))
  end
  tell(slot and 'slot' or 'turn', waiter, slot and slot .. ' ')
end
