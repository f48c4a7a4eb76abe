-- Hands a lock to the next waiter. This is not a script. Scripts include it after queue.lua, and have the keys that are named there.
--
-- KEYS[4]  the fencing token: integer. A script that is called without this key hands nothing over.

-- hand grants the lock to a waiter's successor, but only if the waiter came a moment ago: it counts the TTL
-- from then on, and is most likely alive. Without a counter, KEYS[4], nobody knows which token is next. Those who
-- share the lock have the token of the last hold before; but one more if they wait for other locks, too, which have one more most likely:
-- then all agree at once.
local function hand(waiter, stored, now)
  local came, ttl, cell, attempt, secret = string.match(stored or '', '^%S+ %S+ (%S+) (%S+) (%S+) (%S+) (%S+)$')
  if not secret or not KEYS[4] or now < tonumber(came) or now - came > math.min(FRESH, ttl / 2) then
    return false
  end
  local shares = wantsShare(stored)
  local counts = not shares or string.find(stored, '^%S+ %d+s[%d-]*m')
  local token
  if not counts then
    token = tonumber(redis.pcall('get', KEYS[4]))
  else
    token = redis.pcall('incrby', KEYS[4], 1)
  end
  if type(token) ~= 'number' or token ~= token then
    return false
  elseif counts and token < 2 then -- there was no counter, or it had counted nothing
    redis.call('del', KEYS[4])
    return false
  elseif token > 9007199254740991 then
    if counts then
      redis.call('incrby', KEYS[4], -1)
    end
    return false
  end
  drop(waiter)
  local owner = waiter .. '/' .. attempt .. '.' .. cell
  if shares then
    -- A server with two addresses counts once: the successor may have a share here as another cell.
    local first, last = string.match(stored, '^%S+ %d+s(%d+)-(%d+)')
    local names = {}
    for other = tonumber(first or 0), tonumber(last or -1) do
      if other ~= tonumber(cell) then
        table.insert(names, waiter .. '/' .. attempt .. '.' .. other)
      end
    end
    local twins = names[1] and redis.call('hmget', KEYS[1], unpack(names)) or {}
    for i = 1, #names do
      if twins[i] and tonumber(twins[i]) >= now then
        return true
      end
    end
    -- A yield that comes late queues a waiter whose successor shares the lock. What that has renewed must not become shorter.
    if redis.call('hexists', KEYS[1], owner) == 0 then
      redis.call('hset', KEYS[1], owner, string.format('%013.0f', now + ttl), 'mode', 'shared')
      if redis.call('pttl', KEYS[1]) < tonumber(ttl) then
        local key, ms = KEYS[1], ttl
        -- include expire.lua
      end
    end
  else
    -- See acquire.lua for how long the counter is kept.
    local left, keep = redis.call('pttl', KEYS[4]), math.max(ttl, 3600000) + 90000000 + math.max(0, token / 1000 - now)
    if left >= 0 and left < keep then
      redis.call('pexpire', KEYS[4], string.format('%.0f', keep + 3600000))
    end
    redis.call('hset', KEYS[1], owner, 1, 'mode', 'mutex')
    local key, ms = KEYS[1], ttl
    -- include expire.lua
  end
  local handoff = attempt .. ' ' .. cell .. ' ' .. string.format('%.0f', token) .. ' '
  local proof = redis.sha1hex(secret .. ' ' .. waiter .. ' ' .. handoff .. KEYS[1] .. ' ' .. secret)
  tell('handoff', waiter, handoff .. proof .. ' ')
  return true
end

-- admit hands the lock to all who want to share it and are before everybody else in the queue, if that is allowed, or calls
-- those that have not been called. If I am among them, it does neither for me. It returns whether I am. Those that wait for other
-- locks, too, may have no use for a share yet, and would give it back. So only the first of them is handed one, and only if this may
-- be the moment (lends): when an owner releases that had other locks, too, or had this one for itself.
local function admit(me, now, hands, lends)
  -- Here, only calls for shared locks pay for this.
  -- include sharers.lua
  local mine = false
  local first, stored = sharers(me, now, function(waiter, entry)
    if waiter == me then
      mine = true
    elseif hands and (lends or not gathers(entry)) and hand(waiter, entry, now) then
      lends = lends and not gathers(entry)
      return true
    elseif deadline(entry) > now + CLAIM then
      summon(waiter, entry, now)
    end
  end)
  if first and first ~= me then
    hasten(first, stored, now)
  end
  return mine
end

-- wake is called when the lock is free. It hands the lock to the first in the queue, if that is allowed, or
-- calls that waiter; if I am the first, it does neither. It tells the second that it is next, if the second
-- would not look by itself soon. It returns whether I am the first. If the first wants to share the lock, those
-- right behind it that want to share it count as first, too. If the first is nobody (see open.lua), and the waiter behind it
-- has just left (stood), the next one is called: it asks, and hears when the window is over.
local function wake(me, now, hands, stood, lends)
  local two, stored = front(me, now)
  if not two[1] then
    return false
  elseif wantsShare(stored[1]) then
    return admit(me, now, hands, lends)
  elseif two[1] == me then
    return true
  elseif isNobody(stored[1]) then
    if not two[2] then -- nobody waits any more: what is left of the queue goes when the window is over
      local left = string.format('%.0f', deadline(stored[1]) - now)
      redis.call('pexpire', KEYS[2], left)
      redis.call('pexpire', KEYS[3], left)
    elseif stood then
      tell('turn', two[2])
    end
    return false
  end
  if not hands or not hand(two[1], stored[1], now) then
    summon(two[1], stored[1], now)
  end
  if two[2] and deadline(stored[2]) > now + STRETCHED then
    tell('next', two[2])
  end
  return false
end
