-- The line of waiters at one lock. Not a script: others include it, which have
--
-- KEYS[1]  the lock
-- KEYS[2]  the line: zset, waiter scored by its ticket
-- KEYS[3]  the waiters' deadlines: hash, waiter -> ms on the node's clock, and its heir (see below)
--
-- A waiter is `<client uuid>:<n>`. It gives its place as `<waiter> <ticket> <ms> <heir>`: for so many ms
-- it is kept. The heir is empty, or `<TTL> <cell> <attempt>`: then the lock may be handed to the owner
-- `<waiter>/<attempt>` when the waiter's turn comes, for TTL ms; the cell is the waiter's number for this
-- lock at this node. What is stored is `<deadline>`, or `<deadline> <when the waiter came> <heir>`.
--
-- It is told on the channel quorumlock_wake:<client uuid>:
--   hand <waiter> <attempt> <cell> <token> <lock>   the lock has been granted to the heir of that attempt
--   turn <waiter> <lock>   the lock is free and the waiter is the first in line
--   next <waiter> <lock>   the waiter is the second in line now
local CLAIM = 1000     -- ms that a waiter has to come when its turn is told; longer than between refreshes
local FRESH = 650      -- ms after a waiter came in which it may be handed the lock; longer than between refreshes
local STRETCHED = 2500 -- ms: a deadline further away is that of a waiter who refreshes seldom

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

-- isHeir tells whether an owner is an heir of a waiter, and of an attempt before the one whose place is given
-- if it is: a late attempt takes nothing away from a later one's.
local function isHeir(owner, waiter, place)
  if string.sub(owner, 1, #waiter + 1) ~= waiter .. '/' then
    return false
  end
  local attempt = tonumber(string.sub(owner, #waiter + 2))
  if not attempt or not place then
    return attempt ~= nil
  end
  local own = tonumber(string.match(place, ' (%d+)$') or '')
  return own ~= nil and attempt < own
end

-- takeBack releases what was handed to an heir, or with '*' to any heir of a waiter.
local function takeBack(waiter, heir, channel)
  local held = redis.call('hgetall', KEYS[1])
  for i = 1, #held, 2 do
    if held[i] == heir or heir == '*' and isHeir(held[i], waiter) then
      redis.call('hdel', KEYS[1], held[i])
      redis.pcall('publish', channel, '0')
    end
  end
end

local function deadline(of)
  return tonumber(string.match(of or '', '^%S+') or 0)
end

-- front returns the first two in line, and what is stored of them. Waiters before them whose deadline has
-- passed are dropped, except me; a long row of them by several calls.
local function front(me, now)
  for i = 1, 100 do
    local two = redis.call('zrange', KEYS[2], 0, 1)
    if not two[1] then
      return two, {}, i > 1
    end
    local stored = redis.call('hmget', KEYS[3], two[1], two[2] or two[1])
    if two[1] == me or deadline(stored[1]) > now or i == 100 then
      return two, stored, i > 1
    end
    drop(two[1])
  end
end

-- join puts a waiter into the line, or refreshes its place. It tells whether it stood there.
local function join(waiter, place, now)
  local ticket, ms, heir = string.match(place, '^(%S+) (%S+) (.*)$')
  ms = tonumber(ms)
  local stood = redis.call('zadd', KEYS[2], ticket, waiter) == 0
  heir = heir ~= '' and string.format(' %.0f ', now) .. heir or ''
  redis.call('hset', KEYS[3], waiter, string.format('%.0f', now + ms) .. heir)
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

-- hand grants the lock to a waiter's heir. Only to one who came a moment ago: he counts the TTL from then
-- on, and is most likely there. Without a counter there is no saying which token is next.
local function hand(waiter, stored, now)
  local came, ttl, cell, attempt = string.match(stored or '', '^%S+ (%S+) (%S+) (%S+) (%S+)$')
  if not attempt or now < tonumber(came) or now - came > math.min(FRESH, ttl / 2) then
    return false
  end
  local token = tonumber(redis.pcall('get', KEYS[4]))
  if not token or token ~= token or token >= 9007199254740991 then
    return false
  end
  token = string.format('%.0f', token + 1)
  drop(waiter)
  redis.call('hset', KEYS[1], waiter .. '/' .. attempt, 1)
  redis.call('pexpire', KEYS[1], ttl)
  redis.call('set', KEYS[4], token, 'px', string.format('%.0f', ttl + 86400000 + math.max(0, token / 1000 - now)))
  tell('hand', waiter, attempt .. ' ' .. cell .. ' ' .. token .. ' ')
  return true
end

-- wake is called when the lock is free. It hands the lock to the first in line, if it may be handed
-- over, or tells it that it is free; unless that is me, who knows. It tells the second that it is next, if
-- that would not look for itself soon. It returns whether I am the first.
local function wake(me, now, hands)
  local two, stored = front(me, now)
  if not two[1] or two[1] == me then
    return two[1] ~= nil
  end
  if not hands or not hand(two[1], stored[1], now) then
    if deadline(stored[1]) > now + CLAIM then
      redis.call('hset', KEYS[3], two[1], string.format('%.0f', now + CLAIM))
    end
    tell('turn', two[1])
  end
  if two[2] and deadline(stored[2]) > now + STRETCHED then
    tell('next', two[2])
  end
  return false
end
