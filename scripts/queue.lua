-- The queue of waiters at one lock. This is not a script: scripts with these keys include it.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue: zset, waiter scored by its ticket
-- KEYS[3]  the waiters' entries: hash, waiter -> what is stored of it (see below)
--
-- A waiter is `<client>:<n>`. It gives its entry as `<waiter> <ticket> <ms> <callers> <successor>`: the entry
-- is kept for that many ms. The successor is empty, or `<TTL> <cell> <attempt> <secret>`: then the lock may be
-- granted to the owner `<waiter>/<attempt>.<cell>` when the waiter's turn comes, for TTL ms; the cell is the
-- waiter's number for this lock at this node. What is stored is `<deadline> <callers>`, or
-- `<deadline> <callers> <when the waiter came> <successor>`, with times in ms of the node's clock.
--
-- The client hears on the channel quorumlock_wake:<client>:
--   handoff <waiter> <attempt> <cell> <token> <proof> <lock>   the lock is the successor's
--   turn <waiter> <lock>   the lock is free and the waiter may be the first in the queue
--   next <waiter> <lock>   the waiter should look more often: those before it are few, or may be dead
--
-- The proof shows that the message comes from the node: it is a SHA-1 of the handoff and the waiter's secret.
-- Only those who may read the lock's keys can know the secret.
local CLAIM = 1000     -- ms in which a waiter that is called must come; longer than between refreshes
local PATIENCE = 650   -- ms after which a first waiter that was called is taken for dead, and others are called, too
local FRESH = 650      -- ms for which the lock may be handed to a waiter after it came; longer than between refreshes
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

-- isSuccessor tells whether an owner is a successor of a waiter. If an entry is given, the owner must also be of
-- an attempt before that entry's: a late attempt takes nothing away from a later attempt's successor.
local function isSuccessor(owner, waiter, entry)
  if string.sub(owner, 1, #waiter + 1) ~= waiter .. '/' then
    return false
  end
  local attempt = tonumber(string.match(owner, '^(%d+)%.', #waiter + 2))
  if not attempt or not entry then
    return attempt ~= nil
  end
  local own = tonumber(string.match(entry, ' (%d+) %S+$') or '')
  return own ~= nil and attempt < own
end

-- takeBack releases what was handed to any successor of a waiter.
local function takeBack(waiter, channel)
  local held = redis.call('hgetall', KEYS[1])
  for i = 1, #held, 2 do
    if isSuccessor(held[i], waiter) then
      redis.call('hdel', KEYS[1], held[i])
      redis.pcall('publish', channel, '0')
    end
  end
end

local function deadline(stored)
  return tonumber(string.match(stored or '', '^%S+') or 0)
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

-- join queues a waiter, or refreshes its entry. It tells whether the waiter was queued before.
local function join(waiter, entry, now)
  local ticket, ms, callers, successor = string.match(entry, '^(%S+) (%S+) (%S+) (.*)$')
  ms = tonumber(ms)
  local stood = redis.call('zadd', KEYS[2], ticket, waiter) == 0
  successor = successor ~= '' and string.format(' %.0f ', now) .. successor or ''
  redis.call('hset', KEYS[3], waiter, string.format('%.0f ', now + ms) .. callers .. successor)
  -- Both keys get their expiry together, but one may have been evicted since.
  if redis.call('pttl', KEYS[3]) < ms or redis.call('pttl', KEYS[2]) < ms then
    redis.call('pexpire', KEYS[2], ms)
    redis.call('pexpire', KEYS[3], ms)
  end
  return stood
end

-- tell must not fail: whoever may not publish leaves the waiters to their refresh.
local function tell(what, waiter, more)
  local client = string.match(waiter, '^(.*):')
  if client then
    redis.pcall('publish', 'quorumlock_wake:' .. client, what .. ' ' .. waiter .. ' ' .. (more or '') .. KEYS[1])
  end
end

-- summon calls a waiter: its turn may have come. From now on it has CLAIM ms to come.
local function summon(waiter, stored, now)
  if deadline(stored) > now + CLAIM then
    redis.call('hset', KEYS[3], waiter, string.format('%.0f', now + CLAIM) .. string.match(stored, '^%S+(.*)$'))
  end
  tell('turn', waiter)
end

-- hand grants the lock to a waiter's successor, but only if the waiter came a moment ago: it counts the TTL
-- from then on, and is most likely alive. Without a counter nobody knows which token is next.
local function hand(waiter, stored, now)
  local came, ttl, cell, attempt, secret = string.match(stored or '', '^%S+ %S+ (%S+) (%S+) (%S+) (%S+) (%S+)$')
  if not secret or now < tonumber(came) or now - came > math.min(FRESH, ttl / 2) then
    return false
  end
  local token = tonumber(redis.pcall('get', KEYS[4]))
  if not token or token ~= token or token >= 9007199254740991 then
    return false
  end
  -- See acquire.lua for how long the counter is kept.
  local kept, ahead = '93600000', token / 1000 - now
  if ahead > 3600000 or tonumber(ttl) > 3600000 then
    kept = string.format('%.0f', ttl + 86400000 + math.max(0, ahead))
  end
  token = string.format('%.0f', token + 1)
  drop(waiter)
  redis.call('hset', KEYS[1], waiter .. '/' .. attempt .. '.' .. cell, 1)
  redis.call('pexpire', KEYS[1], ttl)
  redis.call('set', KEYS[4], token, 'px', kept)
  local handoff = attempt .. ' ' .. cell .. ' ' .. token .. ' '
  local proof = redis.sha1hex(secret .. ' ' .. waiter .. ' ' .. handoff .. KEYS[1] .. ' ' .. secret)
  tell('handoff', waiter, handoff .. proof .. ' ')
  return true
end

-- wake is called when the lock is free. It hands the lock to the first in the queue, if that is allowed, or
-- calls that waiter; if I am the first, it does neither. It tells the second that it is next, if the second
-- would not look by itself soon. It returns whether I am the first.
local function wake(me, now, hands)
  local two, stored = front(me, now)
  if not two[1] or two[1] == me then
    return two[1] ~= nil
  end
  if not hands or not hand(two[1], stored[1], now) then
    summon(two[1], stored[1], now)
  end
  if two[2] and deadline(stored[2]) > now + STRETCHED then
    tell('next', two[2])
  end
  return false
end

-- promote is called when the first has left the queue of a lock that is held. It tells the new first that it is next, if
-- it would not look by itself soon.
local function promote(now)
  local two, stored = front(nil, now)
  if two[1] and deadline(stored[1]) > now + STRETCHED then
    tell('next', two[1])
  end
end

-- call is for a caller that finds the lock free and is not the first in the queue. The first may not know, or may
-- be dead. So it is called. If it was called before and has not come, all waiters that are queued before me are
-- called at once: however many are dead, their time is up together. It returns after how many ms I should come
-- again.
local function call(me, now)
  local two, stored = front(me, now)
  local left = deadline(stored[1]) - now
  if left > CLAIM then
    summon(two[1], stored[1], now)
    left = CLAIM
  end
  if left > CLAIM - PATIENCE then
    return left - (CLAIM - PATIENCE)
  end
  local last = me and redis.call('zrank', KEYS[2], me) or 0
  for from = 0, last - 1, 100 do
    local some = redis.call('zrange', KEYS[2], from, math.min(from + 99, last - 1))
    local entries = redis.call('hmget', KEYS[3], unpack(some))
    for i = 1, #some do
      if deadline(entries[i]) > now + CLAIM then
        summon(some[i], entries[i], now)
      end
      left = math.max(left, math.min(deadline(entries[i]) - now, CLAIM))
    end
  end
  return math.max(left, 1)
end
