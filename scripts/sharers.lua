-- Finds the waiters that want to share a lock. This is not a script. Scripts include it after queue.lua, and have the keys that are named there.

local function tries(stored)
  return string.find(stored or '', '^%S+ %d+t') ~= nil
end

-- gathers tells whether a waiter that wants to share the lock waits for other locks, too.
local function gathers(stored)
  return string.find(stored or '', '^%S+ %d+s[%d-]*m') ~= nil
end

-- hasten tells a waiter that keeps others out of a shared lock that it is next, if it would not look by itself soon. If it is
-- dead, its time is up when it would have come.
local function hasten(waiter, stored, now)
  if deadline(stored) > now + STRETCHED then
    redis.call('hset', KEYS[3], waiter, string.format('%.0f', now + STRETCHED) .. string.match(stored, '^%S+(.*)$'))
    tell('next', waiter)
  end
end

-- sharers calls visit for every living waiter that wants to share the lock, up to the first waiter that does not, and returns
-- that one, with what is stored of it. visit tells whether the waiter has left the queue; without a visit, sharers looks only
-- before me. It drops the dead, except me.
local function sharers(me, now, visit)
  local from, count = 0, 4 -- most queues have few of them at the front
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
