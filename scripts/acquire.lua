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

-- Most locks are free and have no queue. They skip this part. EXISTS counts a key once for each
-- time it is named, so the sum tells which keys exist: 1 is the counter alone, more is the lock or
-- the queue.
local exist = redis.call('exists', KEYS[4], KEYS[1], KEYS[1], KEYS[2], KEYS[2])
if hold ~= 1 or exist > 1 then
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

local there = exist % 2 == 1
-- include counter.lua
local token, ttl = asked, tonumber(ARGV[2])
-- Fast path, for grants of a lock in use: the hint is above the last token, in the same minute, and
-- becomes the token. Neither the clock nor the counter's expiry is read. An earlier grant of that
-- minute read both, here or at the node from which a 'keep' took its token. Every grant that finds
-- a token of the first two seconds of a minute reads both, and counting past those seconds takes
-- two million grants. INCRBY keeps the expiry.
if again or last >= asked or last < asked - asked % 60000000 or last % 60000000 < 2000000 or asked > 9007199254740991 or
  ttl > 120000 or ARGV[4] == 'keep' or
  type(redis.pcall('incrby', KEYS[4], asked - last)) ~= 'number' then
  local time = redis.call('time')
  local now = time[1] * 1000000 + time[2]
  local oldest = now - 60000000 -- all tokens of a counter that has ended are lower
  token = last
  if not again or last == 0 then
    if ARGV[4] == 'keep' then
      token = math.max(last + 1, asked)
    elseif asked <= math.max(last, oldest - 1) or asked > now + 60000000 then
      -- The hint is not above all earlier tokens, or more than a minute ahead. Without a token of
      -- the last minute, the clock decides: the end of its ten seconds, so that nodes agree at once.
      token = last >= oldest and last + 1 or now - now % 10000000 + 10000000
    else
      token = asked
    end
    if token > 9007199254740991 then -- 2^53 - 1, the last integer Lua can count to
      return redis.error_reply('ERR the fencing token is exhausted: use another lock name')
    end
  end
  -- The counter is kept until the clock is two minutes past the minute of the token: see
  -- docs/design/tokens.md. It is also kept for a minute longer than the lock. The expiry never
  -- becomes shorter. A counter without an expiry, as Redisson makes them, gets none.
  local ahead = math.max(0, (token - now) / 1000)
  local keep = ahead + math.max(ttl, 120000) + 60000
  if last == 0 and token == asked and ahead <= 60000 and ttl <= 120000 and token >= oldest then
    -- Most new counters: Lua need not format the numbers.
    redis.call('set', KEYS[4], ARGV[3], 'px', '240000')
  elseif last ~= 0 or token >= oldest then -- a restored token that is lower needs no counter
    local left = redis.call('pttl', KEYS[4])
    if left ~= -1 and left < keep then
      redis.call('set', KEYS[4], string.format('%.0f', token), 'px', string.format('%.0f', keep + 60000))
    elseif token > last and type(redis.pcall('incrby', KEYS[4], token - last)) ~= 'number' then
      -- The counter is no integer, or the user lacks the permission for INCRBY.
      if left == -1 then
        redis.call('set', KEYS[4], string.format('%.0f', token))
      else
        redis.call('set', KEYS[4], string.format('%.0f', token), 'px', left)
      end
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
