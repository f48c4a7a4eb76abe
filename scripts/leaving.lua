-- Releases a lock, or leaves its queue. Not a script of its own: scripts include it after
-- queue.lua, holds.lua and handoff.lua, with the keys named there.
-- include successor.lua
-- include fair.lua

-- removeHold removes an owner's hold or share. It returns whether the lock is free.
local function removeHold(owner)
  redis.call('hdel', KEYS[1], owner)
  -- Only the mode may be left.
  return redis.call('hlen', KEYS[1]) <= 1 and redis.call('del', KEYS[1]) >= 0
end

-- removeSuccessors releases the holds of a waiter's successors. last ends in the number of the
-- waiter's last attempt and the cell. Where many share the lock, removeSuccessors uses these two to
-- find the successors of the last attempts. If last is itself a successor, which has released,
-- only successors of earlier attempts are released. Others of its attempt belong to cells that also
-- lead to this server, and have releases of their own.
local function removeSuccessors(waiter, channel, last)
  local attempts, cell = string.match(last or '', '(%d+)[. ](%d+)$')
  attempts = tonumber(attempts or '')
  if attempts and redis.call('hlen', KEYS[1]) > 2 * FEW then
    for attempt = math.max(attempts - FEW, 1), attempts do
      redis.call('hdel', KEYS[1], string.format('%s/%.0f.%s', waiter, attempt, cell))
    end
    return
  end
  local held = redis.call('hkeys', KEYS[1])
  for i = 1, #held do
    if isSuccessor(held[i], waiter, attemptOf(last)) and removeHold(held[i]) then
      redis.pcall('publish', channel, '00')
      tellFair(channel)
    end
  end
end

-- leads tells whether a waiter is first in the queue, or first behind a window's entry.
local function leads(waiter)
  local two = redis.call('zrange', KEYS[2], 0, 1)
  return two[1] == waiter or two[2] == waiter and isNobody(redis.call('hget', KEYS[3], two[1]))
end

-- serveQueue serves the queue after a release, or after a waiter has left. led tells whether that
-- waiter led the queue. A free lock goes to wake, and a shared one to admit. Otherwise, if led,
-- serveQueue tells the new first waiter that it is next, unless that one refreshes soon. It returns
-- whether I could have the lock now.
local function serveQueue(me, now, hands, led, lends)
  if redis.call('exists', KEYS[1]) == 0 then
    return wake(me, now, hands, led, lends)
  end
  if redis.call('hget', KEYS[1], 'mode') == 'shared' then
    -- If many share the lock, some of them are alive; or else the next refresh of the first waiter
    -- shows it.
    local held = redis.call('hlen', KEYS[1]) <= FEW and look()
    if held and not held[1] then
      return wake(me, now, hands, led, lends)
    end
    return admit(me, now, true, lends)
  end
  if led then
    local two, stored = front(nil, now)
    local first = isNobody(stored[1]) and 2 or 1
    if two[first] and deadline(stored[first]) > now + STRETCHED then
      tell('next', two[first])
    end
  end
end
