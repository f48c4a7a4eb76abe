-- Hands a lock to the next waiter. Not a script of its own: scripts include it after queue.lua,
-- with the keys named there.
--
-- KEYS[4]  the fencing token: integer. Without this key, nothing is handed over

-- hand grants the lock to a waiter's successor, and returns whether it did. It does so only if the
-- waiter refreshed its entry a moment ago: the waiter counts the TTL from then, and is most likely
-- alive. Without a counter in KEYS[4] the next token is unknown, and nothing is granted. A sharer
-- gets the token of the last hold. A sharer that waits for other locks, too, gets one more: the
-- others most likely have one more, so that all agree at once.
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
  elseif counts and token < 2 then -- there was no counter, or it was 0
    redis.call('del', KEYS[4])
    return false
  elseif token > 9007199254740991 then
    if counts then
      redis.call('incrby', KEYS[4], -1)
    end
    return false
  end
  drop(waiter, not shares)
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
    -- A late yield queues a waiter whose successor shares the lock already. A share that it has
    -- renewed must not become shorter.
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

-- admit serves the sharers at the front of the queue, up to the first waiter that wants the lock
-- for itself. If hands is set, it hands each of them a share. It calls those that it hands none,
-- unless they were called before. It skips me, and returns whether I am among them. It also skips
-- most of the waiters that it visited before: see sharers.lua.
--
-- A waiter for several locks may lack the others, and would then release the share. So only the
-- first of these is handed one, and only if lends is set: the owner that releases had other locks,
-- too, or held this one alone.
local function admit(me, now, hands, lends)
  -- Included here, so that only calls for shared locks pay for it.
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

-- wake serves the queue of a free lock. It hands the lock to the first waiter if hands is set and
-- that is possible, and calls that waiter otherwise. If I am first, it does neither, and returns
-- true. It tells the second waiter that it is next, unless that one refreshes soon. If the first
-- waiter wants a share, the sharers right behind it count as first, too: see admit.
--
-- The first entry may be a window's: see open.lua. If the waiter behind it has just left (led),
-- wake calls the next one, which then asks and learns when the window ends.
local function wake(me, now, hands, led, lends)
  local two, stored = front(me, now)
  if not two[1] then
    return false
  elseif wantsShare(stored[1]) then
    return admit(me, now, hands, lends)
  elseif two[1] == me then
    return true
  elseif isNobody(stored[1]) then
    if not two[2] then -- nobody waits: the keys of the queue expire with the window
      local left = string.format('%.0f', deadline(stored[1]) - now)
      redis.call('pexpire', KEYS[2], left)
      redis.call('pexpire', KEYS[3], left)
    elseif led then
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
