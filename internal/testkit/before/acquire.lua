-- Acquires a lock for an owner, or re-enters it.
--
-- KEYS[1], KEYS[2], KEYS[3]  the lock and its queue: see queue.lua
-- KEYS[4]  the fencing token: integer
-- ARGV[1]  owner
-- ARGV[2]  TTL, ms
-- ARGV[3]  token hint, in µs of the client's clock: see below
-- ARGV[4]  mode:
--          'try'   acquires if nobody is queued
--          <n>     re-enters: the owner's count becomes n, from n - 1
--          'keep'  acquires past the queue: restores a hold that this node has lost
--          <entry> acquires for a waiter if it is first in the queue, and queues it otherwise. A
--                  hold of a successor of an earlier attempt becomes the owner's
--
-- Reply    token       granted; the owner did not have the lock before
--          {2, token}  granted; the owner had the lock already
--          {0, ms, position, who, now}  refused: who holds it; ms until its key expires, negative
--                      if unknown; the waiter's position in the queue, from 0, -1 if it has none;
--                      for waiters only, the node's clock in ms
--          {7, ms, position, who, now}  refused: the lock is shared, and who is one of the sharers;
--                      '' if there are many
--          {4, ms, position, who, now}  refused: the lock is free, and who is first in the queue;
--                      the waiter should ask again after ms
--
-- The count is set, not added to, so a repeated call changes nothing.
local hold = tonumber(ARGV[4]) or 1
local again = false
local former -- the successor of the waiter, if it holds the lock

-- Most locks are free and have no queue. They skip this part.
if hold ~= 1 or redis.call('exists', KEYS[1], KEYS[2]) > 0 then
  -- include queue.lua
  -- include holds.lua
  -- include join.lua
  -- include successor.lua
  local waiter, entry = string.match(ARGV[4], '^(%S+) (.*)$') -- nil in other modes
  local held, shared = {'', ''}, true
  local many = isCrowded()
  if not many then
    held, shared = look()
  end
  if not held then
    return shared -- the error
  end
  local pttl, who = -2, ''
  if held[1] then
    pttl, who = expiry(held, shared and not many), least(held)
    local count = tonumber(held[2])
    again = not shared and who == ARGV[1] and (count == hold or count == hold - 1)
    if waiter and not shared and isSuccessor(who, waiter, attemptIn(entry)) then
      former, pttl = who, -2
    end
  end
  local free = pttl == -2 and hold == 1
  if not again then
    local mine = free and (former or ARGV[4] == 'keep' or redis.call('zrange', KEYS[2], 0, 0)[1] == waiter)
    if not mine then
      local now = clock()
      -- Join first, then look: a waiter with the lowest ticket is first at once.
      local wasQueued = waiter and join(waiter, entry, now, held[1] and not shared)
      -- A refresh looks at the front even while somebody holds the lock. Otherwise dead waiters
      -- would pile up before the living ones.
      local first
      if free or wasQueued then
        local two, stored = front(waiter, now)
        first = two[1]
        mine = free and first == waiter
        -- A sure ticket may have put me behind a sharer, which nobody has called.
        if not free and shared and wantsShare(stored[1]) and deadline(stored[1]) > now + CLAIM then
          summon(first, stored[1], now)
        end
      end
      mine = mine or free and not first
      if not mine then
        local status = shared and held[1] and 7 or 0
        if free then
          status, who, pttl = 4, first, callFirst(waiter, now)
        end
        return {status, pttl, waiter and redis.call('zrank', KEYS[2], waiter) or -1, who, waiter and now or nil}
      end
    end
    if waiter then
      drop(waiter, true)
    else
      redis.pcall('hdel', KEYS[3], 'served')
    end
  end
end

-- include counter.lua
local token, ttl = asked, tonumber(ARGV[2])
-- Fast path, for most grants: the hint is above the last token, in the same minute, and becomes the
-- token. Neither the clock nor the counter's expiry is read. An earlier grant of that minute read
-- both, here or at the node from which a 'keep' took its token. Every grant that finds a token of
-- the first two seconds of a minute reads both, and counting past those seconds takes two million
-- grants. INCRBY keeps the expiry.
if again or last >= asked or last < asked - asked % 60000000 or last % 60000000 < 2000000 or asked > 9007199254740991 or
  ttl > 3600000 or ARGV[4] == 'keep' or
  type(redis.pcall('incrby', KEYS[4], asked - last)) ~= 'number' then
  local time = redis.call('time')
  local now = time[1] * 1000000 + time[2]
  token = last
  if not again or last == 0 then
    -- The token of a new grant is at least the hint, so that the nodes agree at once. A hint more
    -- than 59 minutes from this node's clock is ignored; without a counter, the clock replaces it.
    -- Grants on the fast path stay within their minute, so no hint in use is ahead by over an hour.
    local hint = asked
    if math.abs(hint - now) > 3540000000 and ARGV[4] ~= 'keep' then
      hint = last == 0 and now or 0
    end
    token = math.max(last + 1, hint)
    if token > 9007199254740991 then -- 2^53 - 1, the last integer Lua can count to
      return redis.error_reply('ERR the fencing token is exhausted: use another lock name')
    end
  end
  -- The counter is kept until the clock is a day past the token, since the next token may come from
  -- the clock alone. It is also kept for a day longer than the lock, unless the client's clock is
  -- far behind. The first grant of each hour makes the expiry long enough for another hour and for
  -- TTLs of up to an hour. Longer TTLs always check it. It never becomes shorter. A counter without
  -- an expiry, as Redisson makes them, gets none.
  local ahead, hour = math.max(0, (token - now) / 1000), now - now % 3600000000
  local keep = math.max(ttl, 3600000) + 90000000 + ahead
  if last == 0 and token == asked and ahead <= 3540000 and ttl <= 3600000 then
    -- Most new counters: Lua need not format the numbers.
    redis.call('set', KEYS[4], ARGV[3], 'px', '97200000')
  elseif last == 0 or token > last and type(redis.pcall('incrby', KEYS[4], token - last)) ~= 'number' then
    -- The counter is new or no integer, or the user lacks the permission for INCRBY.
    local left = redis.call('pttl', KEYS[4])
    if left == -1 then
      redis.call('set', KEYS[4], string.format('%.0f', token))
    else
      redis.call('set', KEYS[4], string.format('%.0f', token), 'px', string.format('%.0f', math.max(left, keep + 3600000)))
    end
  elseif ttl > 3600000 or last < hour or token >= hour + 3600000000 then
    local left = redis.call('pttl', KEYS[4])
    if left >= 0 and left < keep then
      redis.call('pexpire', KEYS[4], string.format('%.0f', keep + 3600000))
    end
  end
end

if former then
  redis.call('hdel', KEYS[1], former)
end
redis.call('hset', KEYS[1], ARGV[1], hold == 1 and '1' or ARGV[4], 'mode', 'mutex')
local key, ms, before = KEYS[1], ARGV[2], again and redis.call('pttl', KEYS[1])
-- include expire.lua
if again then
  -- include earlier.lua
end
return again and {2, token} or token
