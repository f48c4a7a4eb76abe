-- The line of waiters at one lock. Not a script: it stands before those that use it, which have
--
-- KEYS[1]  the lock
-- KEYS[2]  the line: zset, waiter scored by its ticket
-- KEYS[3]  the waiters' deadlines: hash, waiter -> ms on the node's clock
--
-- A waiter is `<client uuid>:<n>`. It is told on the channel quorumlock_wake:<client uuid>:
--   turn <waiter> <lock>   the lock is free and the waiter is the first in line
--   next <waiter> <lock>   the waiter is the second in line now
local CLAIM = 1000     -- ms that a waiter has to come when its turn is told; longer than between refreshes
local STRETCHED = 2500 -- ms: a deadline further away is that of a waiter who refreshes seldom

local function clock()
  local t = redis.call('time')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function deadline(waiter)
  return tonumber(redis.call('hget', KEYS[3], waiter) or 0)
end

local function drop(waiter)
  redis.call('hdel', KEYS[3], waiter)
  return redis.call('zrem', KEYS[2], waiter)
end

-- head returns the first in line. Waiters before it whose deadline has passed are dropped, except me;
-- a long row of them by several calls.
local function head(me, now)
  local dropped = false
  for _ = 1, 100 do
    local first = redis.call('zrange', KEYS[2], 0, 0)[1]
    if not first or first == me or deadline(first) > now then
      return first, dropped
    end
    drop(first)
    dropped = true
  end
  return redis.call('zrange', KEYS[2], 0, 0)[1], dropped
end

-- join puts a waiter into the line, or refreshes its place, for so many ms.
local function join(waiter, ticket, ms, now)
  redis.call('zadd', KEYS[2], ticket, waiter)
  redis.call('hset', KEYS[3], waiter, string.format('%.0f', now + ms))
  for _, key in ipairs({KEYS[2], KEYS[3]}) do
    if redis.call('pttl', key) < ms then
      redis.call('pexpire', key, ms)
    end
  end
end

-- tell must not fail: whoever may not publish leaves the waiters to their refresh.
local function tell(what, waiter)
  local client = string.match(waiter, '^(.*):')
  if client then
    redis.pcall('publish', 'quorumlock_wake:' .. client, what .. ' ' .. waiter .. ' ' .. KEYS[1])
  end
end

-- wake tells the first in line that the lock is free, unless it is me, who knows; and the second that
-- it is next, if it would not look for itself soon.
local function wake(me, now)
  local first = head(me, now)
  if not first or first == me then
    return
  end
  if deadline(first) > now + CLAIM then
    redis.call('hset', KEYS[3], first, string.format('%.0f', now + CLAIM))
  end
  tell('turn', first)
  local second = redis.call('zrange', KEYS[2], 1, 1)[1]
  if second and deadline(second) > now + STRETCHED then
    tell('next', second)
  end
end
