-- Finds the waiters that want to share a lock. Not a script of its own: scripts include it after
-- queue.lua, with the keys named there.

local function tries(stored)
  return string.find(stored or '', '^%S+ %d+t') ~= nil
end

-- gathers tells whether a waiter that wants a share also waits for other locks.
local function gathers(stored)
  return string.find(stored or '', '^%S+ %d+s[%d-]*m') ~= nil
end

-- hasten tells a waiter that blocks sharers that it is next, unless it refreshes soon. It also
-- shortens the waiter's deadline, so that a dead one is dropped when a living one would have come.
local function hasten(waiter, stored, now)
  if deadline(stored) > now + STRETCHED then
    redis.call('hset', KEYS[3], waiter, string.format('%.0f', now + STRETCHED) .. string.match(stored, '^%S+(.*)$'))
    tell('next', waiter)
  end
end

-- sharers calls visit for each living waiter that wants a share. It stops at the first waiter that
-- wants none, and returns that one and its stored entry. visit returns whether the waiter has left
-- the queue. Without a visit, sharers looks only before me. It drops the dead, except me.
local function sharers(me, now, visit)
  local from, count = 0, 4 -- most queues have few sharers at the front
  while true do
    local some = redis.call('zrange', KEYS[2], from, from + count - 1)
    if not some[1] then
      return nil
    end
    count = 100
    local entries = redis.call('hmget', KEYS[3], unpack(some))
    for i = 1, #some do
      if some[i] == me and not visit then
        return nil
      elseif some[i] ~= me and deadline(entries[i]) <= now then
        drop(some[i])
      elseif not wantsShare(entries[i]) and not tries(entries[i]) then
        return some[i], entries[i]
      elseif tries(entries[i]) or not visit or not visit(some[i], entries[i]) then
        from = from + 1
      end
    end
  end
end
