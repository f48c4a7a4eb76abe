-- The line of waiters at one lock. Not a script: others include it, which have
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

local function drop(waiter)
  redis.call('hdel', KEYS[3], waiter)
  return redis.call('zrem', KEYS[2], waiter)
end

-- front returns the first two in line, and their deadlines. Waiters before them whose deadline has
-- passed are dropped, except me; a long row of them by several calls.
local function front(me, now)
  for i = 1, 100 do
    local two = redis.call('zrange', KEYS[2], 0, 1)
    if not two[1] then
      return two, {}, i > 1
    end
    local ends = redis.call('hmget', KEYS[3], two[1], two[2] or two[1])
    ends = {tonumber(ends[1] or 0), tonumber(ends[2] or 0)}
    if two[1] == me or ends[1] > now or i == 100 then
      return two, ends, i > 1
    end
    drop(two[1])
  end
end

-- join puts a waiter into the line, or refreshes its place, for so many ms. It tells whether it stood there.
local function join(waiter, ticket, ms, now)
  local stood = redis.call('zadd', KEYS[2], ticket, waiter) == 0
  redis.call('hset', KEYS[3], waiter, string.format('%.0f', now + ms))
  -- Both keys get their expiry together, but one may have been evicted since.
  if redis.call('pttl', KEYS[3]) < ms or redis.call('pttl', KEYS[2]) < ms then
    redis.call('pexpire', KEYS[2], ms)
    redis.call('pexpire', KEYS[3], ms)
  end
  return stood
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
  local two, ends = front(me, now)
  if not two[1] or two[1] == me then
    return
  end
  if ends[1] > now + CLAIM then
    redis.call('hset', KEYS[3], two[1], string.format('%.0f', now + CLAIM))
  end
  tell('turn', two[1])
  if two[2] and ends[2] > now + STRETCHED then
    tell('next', two[2])
  end
end
