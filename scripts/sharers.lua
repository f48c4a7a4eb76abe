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
    redis.call('hset', KEYS[3], waiter, (string.gsub(stored, '^%S+', string.format('%.0f', now + STRETCHED))))
    tell('next', waiter)
  end
end

-- sharers calls visit for the living waiters that want a share. It stops at the first waiter that
-- wants none, and returns that one and its stored entry. visit returns whether the waiter has left
-- the queue. Without a visit, sharers looks only before me. It drops the dead, except me.
--
-- The field 'served' of KEYS[3] is a ticket: all waiters with lower tickets want shares, and know
-- that they may have them now, but for those who only try, and for those who joined the queue while
-- a client of Redisson's had the lock. Behind the first FEW waiters, sharers skips those with lower
-- tickets. If it visits more than FEW others, it sets the field to the ticket of the last of them
-- that stays queued. See forget in join.lua.
local function sharers(me, now, visit)
  local from, count = 0, 4 -- most queues have few sharers at the front
  local start, passed -- rank of the first waiter not served before; the last one that stays
  local first, stored, done
  while not done do
    if from >= FEW and not start then
      local served = redis.call('hget', KEYS[3], 'served')
      start = served and math.max(from, redis.call('zcount', KEYS[2], '-inf', '(' .. served)) or from
      if start > from and me and (redis.call('zrank', KEYS[2], me) or start) < start then
        if not visit then
          return nil
        end
        visit(me)
      end
      from = start
    end
    local some = redis.call('zrange', KEYS[2], from, from + count - 1)
    if not some[1] then
      if from == 0 then
        redis.pcall('hdel', KEYS[3], 'served')
      end
      break
    end
    count = start and 100 or FEW
    local entries = redis.call('hmget', KEYS[3], unpack(some))
    for i = 1, #some do
      if from >= FEW and not start then
        break
      elseif some[i] == me and not visit then
        done = true
        break
      elseif some[i] ~= me and deadline(entries[i]) <= now then
        drop(some[i])
      elseif not wantsShare(entries[i]) and not tries(entries[i]) then
        first, stored, done = some[i], entries[i], true
        break
      elseif tries(entries[i]) or not visit or not visit(some[i], entries[i]) then
        from, passed = from + 1, some[i]
      end
    end
  end
  if visit and start and from > start + FEW then
    redis.call('hset', KEYS[3], 'served', redis.call('zscore', KEYS[2], passed))
  end
  return first, stored
end
