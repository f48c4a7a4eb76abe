-- Leaves a lock or its queue. This is not a script. Scripts include it after queue.lua, holds.lua and handoff.lua, and have the keys
-- that are named there.
-- include successor.lua

-- giveBack takes an owner out of the lock, whether it shares it or not. It returns whether the lock is free.
local function giveBack(owner)
  redis.call('hdel', KEYS[1], owner)
  return redis.call('hlen', KEYS[1]) <= 1 and redis.call('del', KEYS[1]) >= 0 -- what may be left is the mode
end

-- tellFair tells those who are next at a fair lock of Redisson's that the lock may be free. Each has a channel of its own. The first may
-- be dead, so the second looks, too.
local function tellFair(channel)
  for _, thread in ipairs(redis.pcall('lrange', 'redisson_lock_queue' .. string.sub(channel, 23), 0, 1)) do
    redis.pcall('publish', channel .. ':' .. thread, '0')
  end
end

-- takeBack releases what the successors of a waiter have. Where many share the lock, it looks for those by name: the last
-- ends in the number of the waiter's last attempt and the cell. If the last is a successor itself, which has released, those of
-- its own attempt keep what they have: they are other cells that lead here, and have releases of their own.
local function takeBack(waiter, channel, last)
  local attempts, cell = string.match(last or '', '(%d+)[. ](%d+)$')
  attempts = tonumber(attempts or '')
  if attempts and redis.call('hlen', KEYS[1]) > FEW + attempts then
    for attempt = 1, attempts do
      redis.call('hdel', KEYS[1], string.format('%s/%.0f.%s', waiter, attempt, cell))
    end
    return
  end
  local held = redis.call('hkeys', KEYS[1])
  for i = 1, #held do
    if isSuccessor(held[i], waiter, attemptOf(last)) and giveBack(held[i]) then
      redis.pcall('publish', channel, '00')
      tellFair(channel)
    end
  end
end

-- leads tells whether a waiter is the first in the queue, or the first behind nobody.
local function leads(waiter)
  local two = redis.call('zrange', KEYS[2], 0, 1)
  return two[1] == waiter or two[2] == waiter and isNobody(redis.call('hget', KEYS[3], two[1]))
end

-- pass is called when an owner has released the lock, or a waiter has left the queue. stood tells whether that waiter led it.
-- If the lock is free, or can be shared, pass hands it on. Otherwise, if the waiter led the queue, pass tells the new first that
-- it is next, unless that one looks by itself soon. It returns whether I could have the lock now.
local function pass(me, now, hands, stood, lends)
  if redis.call('exists', KEYS[1]) == 0 then
    return wake(me, now, hands, stood, lends)
  end
  if redis.call('hget', KEYS[1], 'mode') == 'shared' then
    -- If many share the lock, some of them are alive. If not, the first waiter finds that out when it next refreshes.
    local held = redis.call('hlen', KEYS[1]) <= FEW and look()
    if held and not held[1] then
      return wake(me, now, hands, stood, lends)
    end
    return admit(me, now, true, lends)
  end
  if stood then
    local two, stored = front(nil, now)
    local first = isNobody(stored[1]) and 2 or 1
    if two[first] and deadline(stored[first]) > now + STRETCHED then
      tell('next', two[first])
    end
  end
  return false
end
