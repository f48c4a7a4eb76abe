-- The slots of a semaphore. Not a script of its own: scripts with these keys include it, after
-- queue.lua and holds.lua.
--
-- KEYS[1]  the holds: zset, owner scored by the end of its hold, in ms of the node's clock; and
--          'quorumlock_semaphore', scored 10^15 + the number of slots, or +inf if it is unknown
-- KEYS[2], KEYS[3]  the queue and its entries: see queue.lua
-- KEYS[4]  the fencing tokens: hash, slot -> token
-- KEYS[5]  the slots: zset, owner scored by its slot; and `<waiter>/` of a waiter with a successor
--          that has a slot, scored by -1 - slot
--
-- In a waiter's entry, `k<permits>p<slot>` follows the callers: the number of slots that the waiter
-- knows, and its preferred slot. `o<slot>` follows if it takes no other. If the preferred slot is
-- taken, the node then names a free one, the first from that slot on. A slot has one owner at most.
-- In the message of a handoff, `<token>@<slot>` stands where that of a mutex has the token.
local MARK = 'quorumlock_semaphore'
local SLOTS = 1000000000000000 -- in a score, more than any end of a hold

-- give releases the slot of an owner, and returns it; nil if the owner has none.
local function give(owner)
  local slot = redis.call('zscore', KEYS[5], owner)
  if not slot then
    return nil
  end
  local record = string.match(owner, '^.*/')
  if record and tonumber(redis.call('zscore', KEYS[5], record) or 0) == -1 - slot then
    redis.call('zrem', KEYS[5], record)
  end
  redis.call('zrem', KEYS[5], owner)
  redis.call('zrem', KEYS[1], owner)
  if redis.call('zcard', KEYS[1]) == 1 then
    redis.call('del', KEYS[1]) -- only the mark was left
  end
  return tonumber(slot)
end

-- prune removes the holds that are over. A hold lasts as long as a key would: until the clock is
-- past its end. If KEYS[1] was evicted, the ends are unknown: renewals then restore the slots.
local function prune(now)
  if redis.call('exists', KEYS[1]) == 0 then
    redis.call('del', KEYS[5])
    return
  end
  local over = redis.call('zrangebyscore', KEYS[1], '-inf', string.format('(%.0f', now))
  for i = 1, #over do
    if not give(over[i]) then
      redis.call('zrem', KEYS[1], over[i])
    end
  end
end

-- check returns an error if the name belongs to another kind of lock. Otherwise it returns nil, and
-- the number of slots if it is known.
local function check()
  local mark = redis.pcall('zscore', KEYS[1], MARK)
  if type(mark) == 'table' then
    if not string.find(mark.err, 'WRONGTYPE', 1, true) then
      return mark
    end
    local fields = redis.pcall('hgetall', KEYS[1])
    return redis.error_reply('NOSEMAPHORE ' .. (fields.err and 'WRONGTYPE' or culprit(least(fields))))
  elseif not mark and redis.call('exists', KEYS[1]) == 1 then
    return redis.error_reply('NOSEMAPHORE zset')
  end
  local tokens = redis.pcall('hlen', KEYS[4])
  if type(tokens) == 'table' then
    return string.find(tokens.err, 'WRONGTYPE', 1, true) and redis.error_reply('NOSEMAPHORE token') or tokens
  end
  local score = tonumber(mark or nil)
  return nil, score and score < math.huge and score - SLOTS
end

-- isOther tells whether the semaphore is in use with another number of slots than k. number is the
-- result of check. Once all holds are over, the number does not count.
local function isOther(number, k)
  return number and number ~= k and redis.call('exists', KEYS[1]) == 1
end

-- lowest returns the owner of the lowest slot that is taken.
local function lowest()
  return redis.call('zrangebyscore', KEYS[5], 0, '+inf', 'limit', 0, 1)[1]
end

-- vacancies returns how many of the first k slots are free.
local function vacancies(k)
  return k - redis.call('zcount', KEYS[5], 0, k - 1)
end

-- vacant returns the first free slot below k, from a slot on and around; a taken one if none is
-- free.
local function vacant(k, from)
  local low, high = from % k, k
  if redis.call('zcount', KEYS[5], low, high - 1) == high - low then
    low = 0
  end
  if redis.call('zcount', KEYS[5], low, low) == 0 then
    return low
  end
  while high - low > 1 do -- a slot in [low, high) is free
    local middle = math.floor((low + high) / 2)
    if redis.call('zcount', KEYS[5], low, middle - 1) < middle - low then
      high = middle
    else
      low = middle
    end
  end
  return low
end

-- lengthen makes a key last for at least ms, and for some more if it must change the expiry.
local function lengthen(key, ms, more)
  if redis.call('pttl', key) < ms then
    ms = string.format('%.0f', ms + (more or 0))
    -- include expire.lua
  end
end

-- lengthenTokens keeps the tokens for as long as acquire.lua would keep a counter.
local function lengthenTokens(token, now, ttl)
  lengthen(KEYS[4], math.max(0, math.floor(token / 1000) - now) + math.max(ttl, 120000) + 60000, 60000)
end

-- assign gives a free slot of k to an owner, with a token. A restored token without an earlier one
-- of the slot is not kept if it is more than a minute old: see acquire.lua. k is nil if the client
-- does not tell its number.
local function assign(owner, slot, token, now, ttl, k)
  if token / 1000 >= now - 60000 or redis.call('hexists', KEYS[4], slot) == 1 then
    redis.call('hset', KEYS[4], slot, string.format('%.0f', token))
    lengthenTokens(token, now, ttl)
  end
  local mark = k and string.format('%.0f', SLOTS + k) or redis.call('zscore', KEYS[1], MARK) or '+inf'
  redis.call('zadd', KEYS[1], string.format('%.0f', now + ttl), owner, mark, MARK)
  lengthen(KEYS[1], ttl)
  redis.call('zadd', KEYS[5], slot, owner)
  local record = string.match(owner, '^.*/')
  if record then
    redis.call('zadd', KEYS[5], -1 - slot, record)
  end
  lengthen(KEYS[5], ttl)
end

-- wants reads an entry: the number of slots that the waiter knows, and its preferred slot. If the
-- waiter takes no other, wants also returns the slot from which on it is told a free one.
local function wants(stored)
  local k, wish, other = string.match(stored or '', ' %d+k(%d+)p(%d+)o?(%d*)')
  return tonumber(k), tonumber(wish), tonumber(other)
end

-- successorOf returns the successor of a waiter that has a slot, if there is one.
local function successorOf(waiter)
  local record = redis.call('zscore', KEYS[5], waiter .. '/')
  return record and redis.call('zrangebyscore', KEYS[5], -1 - record, -1 - record)[1]
end

-- handSlot gives a free slot to a waiter's successor, as hand in handoff.lua gives a mutex.
local function handSlot(waiter, stored, slot, now, k)
  local came, ttl, cell, attempt, secret = string.match(stored, '^%S+ %S+ (%S+) (%S+) (%S+) (%S+) (%S+)$')
  if not secret or now < tonumber(came) or now - came > math.min(FRESH, ttl / 2) then
    return false
  end
  -- A late yield queues a waiter whose successor has a slot already. That hold must not move to
  -- another slot, nor end earlier.
  if successorOf(waiter) then
    return false
  end
  local token = tonumber(redis.pcall('hget', KEYS[4], slot) or '')
  if not token or token ~= token or token >= 9007199254740991 then
    return false
  end
  drop(waiter)
  assign(waiter .. '/' .. attempt .. '.' .. cell, slot, token + 1, now, tonumber(ttl), k)
  local handoff = attempt .. ' ' .. cell .. ' ' .. string.format('%.0f', token + 1) .. '@' .. slot .. ' '
  local proof = redis.sha1hex(secret .. ' ' .. waiter .. ' ' .. handoff .. KEYS[1] .. ' ' .. secret)
  tell('handoff', waiter, handoff .. proof .. ' ')
  return true
end

-- final returns the rank of the last waiter that one of the free slots is left for.
local function final(free)
  return math.min(free, redis.call('zcard', KEYS[2])) - 1
end

-- callLast calls that waiter, unless it was called before.
local function callLast(free, now)
  local waiter = redis.call('zrange', KEYS[2], final(free), final(free))[1]
  local stored = redis.call('hget', KEYS[3], waiter or '')
  if deadline(stored) > now + CLAIM then
    summon(waiter, stored, now)
  end
end

-- serve serves the queue after a release or a leave. It returns whether I could have a slot now.
--
-- If one slot is free, hands is set, and the first waiter knows the number of slots, serve hands the
-- slot to that waiter. Otherwise it calls the first waiter that was not called before, if there is a
-- slot for it. The first waiter may wait for other locks, or have been told of a slot by an answer.
-- So the last one with a slot is called as well. While several slots are free, waiters are on their
-- way to them. Each asks every node for the same slot, but handoffs would give it different slots at
-- different nodes.
--
-- A waiter that is called by a release is told which slot was released: that slot will soon be free
-- at every node. The first waiter without a slot is told that it is next, unless it refreshes soon.
--
-- If many slots are free, serve looks at the first FEW waiters, and then at the last one with a
-- slot: those between were called before that one.
local function serve(me, now, hands, released)
  local wrong, number = check()
  if wrong then -- the queue is of another kind of lock
    return false
  end
  prune(now)
  local from, served, mine = 0, false, false
  while true do
    local waiter = redis.call('zrange', KEYS[2], from, from)[1]
    if not waiter then
      return mine
    end
    local stored = redis.call('hget', KEYS[3], waiter)
    local k, wish = wants(stored)
    local free = k and vacancies(k)
    if not k or waiter ~= me and deadline(stored) <= now then
      drop(waiter)
    elseif free <= from or served and not me then
      if served and free > 0 then -- the last one with a slot may have it because of this release
        callLast(free, now)
      end
      if free <= from and waiter ~= me and deadline(stored) > now + STRETCHED then
        tell('next', waiter)
      end
      return mine
    elseif waiter == me then
      return true
    elseif not served and hands and free == 1 and not isOther(number, k) and handSlot(waiter, stored, vacant(k, wish), now, k) then
      served = true
    else
      if not served and deadline(stored) > now + CLAIM then
        summon(waiter, stored, now, released and released < k and released)
        served = true
      end
      from = from + 1
      if from == FEW and final(free) > from then
        from = final(free)
        if me and redis.call('zrank', KEYS[2], me) < from then
          me, mine = nil, true
        end
      end
    end
  end
end
