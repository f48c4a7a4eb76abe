-- Queues a waiter. Not a script of its own: scripts include it after queue.lua, with the keys named
-- there.

-- forget lowers the field 'served' to the ticket of a waiter that does not know that it may have a
-- share, or wants none: see sharers.lua.
local function forget(waiter)
  local served = redis.call('hget', KEYS[3], 'served')
  local ticket = served and redis.call('zscore', KEYS[2], waiter)
  if ticket and tonumber(ticket) < tonumber(served) then
    redis.call('hset', KEYS[3], 'served', ticket)
  end
end

-- dropBefore drops the dead waiters directly before me, 100 at most, if I am the last in the queue.
-- Otherwise each process that dies would leave an entry: front stops at the first living waiter.
local function dropBefore(me, now)
  for _ = 1, 100 do
    local two = redis.call('zrange', KEYS[2], -2, -1)
    if two[2] ~= me or deadline(redis.call('hget', KEYS[3], two[1])) > now then
      return
    end
    drop(two[1])
  end
end

-- join queues a waiter, or refreshes its entry. It returns whether the waiter was queued before. An
-- unsure ticket that is more than a second from this node's clock is replaced by the clock. An
-- unsure ticket does not move a waiter that is queued. held tells that 'served' need not change: the
-- lock is not shared (see sharers.lua), or is a semaphore.
local function join(waiter, entry, now, held)
  local ticket, ms, callers, successor = string.match(entry, '^(%S+) (%S+) (%S+) (.*)$')
  ms = tonumber(ms)
  local wasQueued
  if string.sub(ticket, -1) == '?' then
    ticket = string.sub(ticket, 1, -2)
    if math.abs(ticket - now * 1000) > 1000000 then
      ticket = string.format('%.0f', now * 1000)
    end
    wasQueued = redis.call('zadd', KEYS[2], 'nx', ticket, waiter) == 0
  else
    wasQueued = redis.call('zadd', KEYS[2], ticket, waiter) == 0
  end
  -- Both keys get their expiry together, but one may have been evicted since.
  local short = redis.call('pttl', KEYS[3]) < ms or redis.call('pttl', KEYS[2]) < ms
  if short then
    local key = KEYS[2]
    -- include expire.lua
  end
  successor = successor ~= '' and string.format(' %.0f ', now) .. successor or ''
  redis.call('hset', KEYS[3], waiter, string.format('%.0f ', now + ms) .. callers .. successor)
  if short then
    redis.call('pexpire', KEYS[3], ms)
  end
  if not held and not string.find(callers, '[st]') then
    forget(waiter)
  end
  if not wasQueued then
    dropBefore(waiter, now)
  end
  return wasQueued
end

-- callFirst is for a caller that finds the lock free and is not first in the queue. The first
-- waiter may not know that, or may be dead, so it is called. If it was called before and has not
-- come, all waiters queued before me are called at once. So the time of all dead ones ends
-- together, however many there are. Each is called once for the same first: my ticket is stored
-- with the deadline of the first, until the first comes or is dropped. All waiters with lower
-- tickets have been called, or have joined since. callFirst returns the number of ms until I should
-- ask again.
local function callFirst(me, now)
  local two, stored = front(me, now)
  local left = deadline(stored[1]) - now
  if left > CLAIM then
    summon(two[1], stored[1], now)
    left = CLAIM
  end
  if left > CLAIM - OVERDUE then
    return left - (CLAIM - OVERDUE)
  elseif isNobody(stored[1]) then
    return left -- a window's entry: nobody can come
  end
  local last = me and redis.call('zrank', KEYS[2], me) or 0
  local mark = string.match(stored[1], ',(%d+)')
  local called = mark and redis.call('zcount', KEYS[2], '-inf', '(' .. mark) or 0
  if called < last then
    local marked = string.format('%.0f,', now + left) .. redis.call('zscore', KEYS[2], me)
    redis.call('hset', KEYS[3], two[1], (string.gsub(stored[1], '^%S+', marked)))
  end
  for from = 0, last - 1, 100 do
    local some = redis.call('zrange', KEYS[2], from, math.min(from + 99, last - 1))
    local entries = redis.call('hmget', KEYS[3], unpack(some))
    for i = 1, #some do
      if from + i > called and deadline(entries[i]) > now + CLAIM then
        summon(some[i], entries[i], now)
      end
      left = math.max(left, math.min(deadline(entries[i]) - now, CLAIM))
    end
  end
  return math.max(left, 1)
end
