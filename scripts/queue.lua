-- The queue of waiters at one lock. This is not a script: scripts with these keys include it.
--
-- KEYS[1]  the lock: hash, see look
-- KEYS[2]  the queue: zset, waiter scored by its ticket
-- KEYS[3]  the waiters' entries: hash, waiter -> what is stored of it (see below)
--
-- A waiter is `<client>:<n>`. It gives its entry as `<waiter> <ticket> <ms> <callers> <successor>`: the entry
-- is kept for that many ms. The callers are a number. 's' follows if the waiter wants to share the lock, and then `<first>-<last>`
-- if it has a successor and other cells in that range may lead to the same server. 't' follows if it is a TryLock that wants the
-- lock to itself and has met no other contender: those who want to share need not wait for it, as it may be over in a moment.
-- The successor is empty, or `<TTL> <cell> <attempt> <secret>`: then the lock may be granted to the owner
-- `<waiter>/<attempt>.<cell>` when the waiter's turn comes, for TTL ms; the cell is the waiter's number for this lock at this
-- node. What is stored is `<deadline> <callers>`, or `<deadline> <callers> <when the waiter came> <successor>`, with times in ms
-- of the node's clock.
--
-- The client hears on the channel quorumlock_wake:<client>:
--   handoff <waiter> <attempt> <cell> <token> <proof> <lock>   the lock is the successor's
--   turn <waiter> <lock>   the lock is free and the waiter may be the first in the queue
--   slot <waiter> <slot> <lock>   the same, of a semaphore: this slot has been released
--   next <waiter> <lock>   the waiter should look more often: those before it are few, or may be dead
--
-- On Redisson's channel of the lock a release publishes a zero, as Redisson does, but with two digits: this library knows its
-- own releases by that. Redisson reads a number.
--
-- An entry of 0 callers is no waiter. It keeps a free lock from all who are queued for a moment: see open.lua.
--
-- The proof shows that the message comes from the node: it is a SHA-1 of the handoff and the waiter's secret.
-- Only those who may read the lock's keys can know the secret.
local CLAIM = 1000     -- ms in which a waiter that is called must come; longer than between refreshes
local PATIENCE = 650   -- ms after which a first waiter that was called is taken for dead, and others are called, too
local FRESH = 650      -- ms for which the lock may be handed to a waiter after it came; longer than between refreshes
local FEW = 16         -- fields of a shared lock: most calls look at all of no more
local STRETCHED = 2500 -- ms: a waiter whose deadline is further away refreshes seldom

local function clock()
  local t = redis.call('time')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- least returns one of the owners of a lock: the same at every node that has the same ones.
local function least(held)
  local who = held[1]
  for i = 3, #held, 2 do
    who = held[i] < who and held[i] or who
  end
  return who
end

-- look reads the lock. A hold is `<owner>` -> how often it was entered, beside `mode` -> 'mutex'. A hold of Redisson's has no
-- mode, and its owner is `<uuid>:<thread>`. A lock that is shared has
-- `mode` -> 'shared', and for each owner until when it shares, in ms of the node's clock: a number of at least 13 digits, as
-- no hold has. (Redisson's read-write lock looks at the mode, and stays out.) look returns the owners, each followed by its
-- value, and whether they share; or nil and an error. It drops those whose share is over. A share lasts as long as a key
-- would: until the clock shows more than its end.
local function look()
  local all = redis.pcall('hgetall', KEYS[1])
  if all.err then
    if type(redis.pcall('zscore', KEYS[1], 'quorumlock_semaphore')) == 'string' then
      return nil, redis.error_reply('NOTALOCK quorumlock_semaphore')
    end
    return nil, string.find(all.err, 'WRONGTYPE', 1, true) and redis.error_reply('NOTALOCK WRONGTYPE') or all
  end
  local held, mode = {}, nil
  for i = 1, #all, 2 do
    if all[i] == 'mode' and (all[i + 1] == 'mutex' or all[i + 1] == 'shared') then
      mode = all[i + 1]
    elseif not string.find(all[i + 1], '^%d+$') or #all[i + 1] > 15 or not string.find(all[i], '^%S+:%d[%d/.]*$') then
      return nil, redis.error_reply('NOTALOCK ' .. all[i])
    else
      table.insert(held, all[i])
      table.insert(held, all[i + 1])
    end
  end
  if mode == 'shared' then
    local now, living, over = clock(), {}, {}
    for i = 1, #held, 2 do
      if tonumber(held[i + 1]) >= now then
        table.insert(living, held[i])
        table.insert(living, held[i + 1])
      else
        table.insert(over, held[i])
      end
    end
    if not living[1] then
      redis.call('del', KEYS[1])
    else
      for i = 1, #over, 1000 do -- Lua can unpack some thousands
        redis.call('hdel', KEYS[1], unpack(over, i, math.min(i + 999, #over)))
      end
    end
    return living, true
  elseif #held > 2 or held[1] and not mode and string.match(held[1], '^%x+%-%x+%-%x+%-%x+%-%x+():%d+$') ~= 37 then
    return nil, redis.error_reply('NOTALOCK ' .. least(held))
  end
  return held, false
end

-- looks tells whether a caller looks at all who share the lock, which has so many fields. While they are few, every caller does;
-- otherwise some do, by the clock, so that a caller looks at FEW on average.
local function looks(fields)
  return redis.call('time')[2] % fields < FEW
end

-- expiry returns after how many ms those that look has found will have lost the lock, if they do not renew it; negative if
-- unknown.
local function expiry(held, shared)
  if not shared then
    return redis.call('pttl', KEYS[1])
  end
  local last = 0
  for i = 2, #held, 2 do
    last = math.max(last, tonumber(held[i]))
  end
  return last + 1 - clock()
end

local function drop(waiter)
  local stood = redis.call('zrem', KEYS[2], waiter)
  if stood == 1 then
    redis.call('hdel', KEYS[3], waiter)
  end
  return stood
end

-- isSuccessor tells whether an owner is a successor of a waiter. If before is given, the owner must also be of an attempt
-- before that one: a late attempt takes nothing away from a later attempt's successor.
local function isSuccessor(owner, waiter, before)
  if string.sub(owner, 1, #waiter + 1) ~= waiter .. '/' then
    return false
  end
  local attempt = tonumber(string.match(owner, '^(%d+)%.', #waiter + 2))
  return attempt ~= nil and (not before or attempt < before)
end

-- attemptIn reads the number of the attempt in an entry: 0 if it has no successor.
local function attemptIn(entry)
  return tonumber(string.match(entry, ' (%d+) %S+$') or '') or 0
end

-- attemptOf reads the number of the attempt in the name of a successor. It is nil for other owners.
local function attemptOf(owner)
  return tonumber(string.match(owner or '', '/(%d+)%.%d+$') or '')
end

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

local function deadline(stored)
  return tonumber(string.match(stored or '', '^%S+') or 0)
end

-- isNobody tells whether an entry is no waiter's, but keeps the lock from all who are queued: see open.lua.
local function isNobody(stored)
  return string.find(stored or '', '^%S+ 0') ~= nil
end

-- leads tells whether a waiter is the first in the queue, or the first behind nobody.
local function leads(waiter)
  local two = redis.call('zrange', KEYS[2], 0, 1)
  return two[1] == waiter or two[2] == waiter and isNobody(redis.call('hget', KEYS[3], two[1]))
end

local function wantsShare(stored)
  return string.find(stored or '', '^%S+ %d+s') ~= nil
end

-- front returns the first two in the queue, and what is stored of them. It first drops the waiters before them
-- whose deadline has passed, except me.
local function front(me, now)
  while true do
    local two = redis.call('zrange', KEYS[2], 0, 1)
    if not two[1] then
      return two, {}
    end
    local stored = redis.call('hmget', KEYS[3], two[1], two[2] or two[1])
    if two[1] == me or deadline(stored[1]) > now then
      return two, stored
    end
    local some, dead = redis.call('zrange', KEYS[2], 0, 99), {}
    local entries = redis.call('hmget', KEYS[3], unpack(some))
    for i = 1, #some do
      if some[i] == me or deadline(entries[i]) > now then
        break
      end
      dead[i] = some[i]
    end
    redis.call('zrem', KEYS[2], unpack(dead))
    redis.call('hdel', KEYS[3], unpack(dead))
  end
end

-- join queues a waiter, or refreshes its entry. It tells whether the waiter was queued before. A waiter's ticket never rises. It
-- falls if the waiter's clock was set back: a call with a higher ticket was sent earlier, and is late.
local function join(waiter, entry, now)
  local ticket, ms, callers, successor = string.match(entry, '^(%S+) (%S+) (%S+) (.*)$')
  ms = tonumber(ms)
  local stood = redis.call('zscore', KEYS[2], waiter)
  if not stood or tonumber(ticket) < tonumber(stood) then
    redis.call('zadd', KEYS[2], ticket, waiter)
  end
  successor = successor ~= '' and string.format(' %.0f ', now) .. successor or ''
  redis.call('hset', KEYS[3], waiter, string.format('%.0f ', now + ms) .. callers .. successor)
  -- Both keys get their expiry together, but one may have been evicted since.
  if redis.call('pttl', KEYS[3]) < ms or redis.call('pttl', KEYS[2]) < ms then
    redis.call('pexpire', KEYS[2], ms)
    redis.call('pexpire', KEYS[3], ms)
  end
  return stood
end

-- tell must not fail: whoever may not publish leaves the waiters to their refresh.
local function tell(what, waiter, more)
  local client = string.match(waiter, '^(.*):')
  if client then
    redis.pcall('publish', 'quorumlock_wake:' .. client, what .. ' ' .. waiter .. ' ' .. (more or '') .. KEYS[1])
  end
end

-- summon calls a waiter: its turn may have come. From now on it has CLAIM ms to come. slot is nil if the waiter need not know
-- what has been released.
local function summon(waiter, stored, now, slot)
  if deadline(stored) > now + CLAIM then
    redis.call('hset', KEYS[3], waiter, string.format('%.0f', now + CLAIM) .. string.match(stored, '^%S+(.*)$'))
  end
  tell(slot and 'slot' or 'turn', waiter, slot and slot .. ' ')
end

-- hasTwin tells whether a waiter's successor already has a share here as another cell: a server with two addresses counts once.
local function hasTwin(waiter, stored, attempt, cell, now)
  local first, last = string.match(stored, '^%S+ %d+s(%d+)-(%d+)')
  local names = {}
  for other = tonumber(first or 0), tonumber(last or -1) do
    if other ~= tonumber(cell) then
      table.insert(names, waiter .. '/' .. attempt .. '.' .. other)
    end
  end
  local shares = names[1] and redis.call('hmget', KEYS[1], unpack(names)) or {}
  for i = 1, #names do
    if shares[i] and tonumber(shares[i]) >= now then
      return true
    end
  end
  return false
end

-- hand grants the lock to a waiter's successor, but only if the waiter came a moment ago: it counts the TTL
-- from then on, and is most likely alive. Without a counter, KEYS[4], nobody knows which token is next. Those who
-- share the lock have the token of the last hold before.
local function hand(waiter, stored, now)
  local came, ttl, cell, attempt, secret = string.match(stored or '', '^%S+ %S+ (%S+) (%S+) (%S+) (%S+) (%S+)$')
  if not secret or not KEYS[4] or now < tonumber(came) or now - came > math.min(FRESH, ttl / 2) then
    return false
  end
  local token = tonumber(redis.pcall('get', KEYS[4]))
  if not token or token ~= token or token >= 9007199254740991 then
    return false
  end
  local shares = wantsShare(stored)
  if not shares and type(redis.pcall('incrby', KEYS[4], 1)) ~= 'number' then
    return false
  end
  drop(waiter)
  local owner = waiter .. '/' .. attempt .. '.' .. cell
  if shares then
    if hasTwin(waiter, stored, attempt, cell, now) then
      return true
    end
    -- A yield that comes late queues a waiter whose successor shares the lock. What that has renewed must not become shorter.
    if redis.call('hexists', KEYS[1], owner) == 0 then
      redis.call('hset', KEYS[1], owner, string.format('%013.0f', now + ttl), 'mode', 'shared')
      if redis.call('pttl', KEYS[1]) < tonumber(ttl) then
        redis.call('pexpire', KEYS[1], ttl)
      end
    end
    token = string.format('%.0f', token)
  else
    -- See acquire.lua for how long the counter is kept.
    local left, keep = redis.call('pttl', KEYS[4]), math.max(ttl, 3600000) + 90000000 + math.max(0, token / 1000 - now)
    if left >= 0 and left < keep then
      redis.call('pexpire', KEYS[4], string.format('%.0f', keep + 3600000))
    end
    token = string.format('%.0f', token + 1)
    redis.call('hset', KEYS[1], owner, 1, 'mode', 'mutex')
    redis.call('pexpire', KEYS[1], ttl)
  end
  local handoff = attempt .. ' ' .. cell .. ' ' .. token .. ' '
  local proof = redis.sha1hex(secret .. ' ' .. waiter .. ' ' .. handoff .. KEYS[1] .. ' ' .. secret)
  tell('handoff', waiter, handoff .. proof .. ' ')
  return true
end

-- hasten tells a waiter that keeps others out of a shared lock that it is next, if it would not look by itself soon. If it is
-- dead, its time is up when it would have come.
local function hasten(waiter, stored, now)
  if deadline(stored) > now + STRETCHED then
    redis.call('hset', KEYS[3], waiter, string.format('%.0f', now + STRETCHED) .. string.match(stored, '^%S+(.*)$'))
    tell('next', waiter)
  end
end

local function tries(stored)
  return string.find(stored or '', '^%S+ %d+t') ~= nil
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

-- admit hands the lock to all who want to share it and are before everybody else in the queue, if that is allowed, or calls
-- those that have not been called. If I am among them, it does neither for me. It returns whether I am.
local function admit(me, now, hands)
  local mine = false
  local first, stored = sharers(me, now, function(waiter, entry)
    if waiter == me then
      mine = true
    elseif hands and hand(waiter, entry, now) then
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
local function wake(me, now, hands, stood)
  local two, stored = front(me, now)
  if not two[1] then
    return false
  elseif wantsShare(stored[1]) then
    return admit(me, now, hands)
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

-- pass is called when an owner has released the lock, or a waiter has left the queue. stood tells whether that waiter led it.
-- If the lock is free, or can be shared, pass hands it on. Otherwise, if the waiter led the queue, pass tells the new first that
-- it is next, unless that one looks by itself soon. It returns whether I could have the lock now.
local function pass(me, now, hands, stood)
  if redis.call('exists', KEYS[1]) == 0 then
    return wake(me, now, hands, stood)
  end
  if redis.call('hget', KEYS[1], 'mode') == 'shared' then
    -- If many share the lock, some of them are alive. If not, the first waiter finds that out when it next refreshes.
    local held = redis.call('hlen', KEYS[1]) <= FEW and look()
    if held and not held[1] then
      return wake(me, now, hands, stood)
    end
    return admit(me, now, true)
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

-- call is for a caller that finds the lock free and is not the first in the queue. The first may not know, or may
-- be dead. So it is called. If it was called before and has not come, all waiters that are queued before me are
-- called at once: however many are dead, their time is up together. It returns after how many ms I should come
-- again.
local function call(me, now)
  local two, stored = front(me, now)
  local left = deadline(stored[1]) - now
  if left > CLAIM then
    summon(two[1], stored[1], now)
    left = CLAIM
  end
  if left > CLAIM - PATIENCE then
    return left - (CLAIM - PATIENCE)
  elseif isNobody(stored[1]) then
    return left -- it is nobody who could come
  end
  local last = me and redis.call('zrank', KEYS[2], me) or 0
  for from = 0, last - 1, 100 do
    local some = redis.call('zrange', KEYS[2], from, math.min(from + 99, last - 1))
    local entries = redis.call('hmget', KEYS[3], unpack(some))
    for i = 1, #some do
      if deadline(entries[i]) > now + CLAIM then
        summon(some[i], entries[i], now)
      end
      left = math.max(left, math.min(deadline(entries[i]) - now, CLAIM))
    end
  end
  return math.max(left, 1)
end
