-- Acquires a lock for an owner, or enters it again.
--
-- KEYS[1], KEYS[2], KEYS[3]  the lock and its queue: see queue.lua
-- KEYS[4]  the fencing token: integer
-- ARGV[1]  owner
-- ARGV[2]  TTL, ms
-- ARGV[3]  token hint, in µs of the client's clock: see below
-- ARGV[4]  how the queue is met:
--          'try'   acquires if nobody is queued
--          <n>     enters again: the owner's count becomes n, if it is n - 1
--          'keep'  acquires past the queue: a holder gets back what this node has lost
--          <entry> acquires for a waiter if it is the first, and queues it otherwise. What was granted
--                  to a successor of an earlier attempt becomes the owner's
--
-- Reply    token       granted; the owner did not have the lock before
--          {2, token}  granted; the owner had the lock already
--          {0, ms, position, who, now}  refused: who holds it, and ms until its key expires, negative if
--                      unknown; the waiter's position in the queue from 0, -1 if it has none; the ms of the node's clock, for
--                      waiters only
--          {7, ms, position, who, now}  refused: some share it, one of whom is named
--          {4, ms, position, who, now}  refused: the lock is free, and who is the first in the queue; the
--                      waiter should come again in ms
--
-- The count is set, not added to: the same call twice changes nothing the second time.
local hold = tonumber(ARGV[4]) or 1
local again = false
local former -- a successor of the waiter that has the lock

-- Most locks are free and have no queue. They skip this part.
if hold ~= 1 or redis.call('exists', KEYS[1], KEYS[2]) > 0 then
  -- include queue.lua
  -- include holds.lua
  -- include join.lua
  -- include successor.lua
  local waiter, entry = string.match(ARGV[4], '^(%S+) (.*)$') -- nil for the others
  local held, shared = look()
  if not held then
    return shared -- the error
  end
  local pttl, who = -2, ''
  if held[1] then
    pttl, who = expiry(held, shared), least(held)
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
      -- Joining comes before looking: a lower ticket that comes to a free lock is the first.
      local stood = waiter and join(waiter, entry, now)
      -- A refresh looks while somebody holds the lock, too. Otherwise the dead would pile up, and keep the living far back.
      local first
      if free or stood then
        first = front(waiter, now)[1]
        mine = free and first == waiter
      end
      mine = mine or free and not first
      if not mine then
        local status = shared and held[1] and 7 or 0
        if free then
          status, who, pttl = 4, first, call(waiter, now)
        end
        return {status, pttl, waiter and redis.call('zrank', KEYS[2], waiter) or -1, who, waiter and now or nil}
      end
    end
    if waiter then
      drop(waiter)
    end
  end
end

-- include counter.lua
local token, ttl = asked, tonumber(ARGV[2])
-- Most grants take the hint as it is: it is in the minute of the last token, and later. They look neither at the clock nor at the
-- counter's expiry, because a grant before them in that minute did, here or where a 'keep' has its token from: whoever finds a token
-- of the minute's first two seconds looks, and to get past those by counting takes two million grants. INCRBY leaves the expiry as
-- it is.
if again or last >= asked or last < asked - asked % 60000000 or last % 60000000 < 2000000 or asked > 9007199254740991 or
  ttl > 3600000 or ARGV[4] == 'keep' or
  type(redis.pcall('incrby', KEYS[4], asked - last)) ~= 'number' then
  local time = redis.call('time')
  local now = time[1] * 1000000 + time[2]
  token = last
  if not again or last == 0 then
    -- A new grant's token is at least the hint, so that the nodes agree at once. The hint of a client whose
    -- clock is wrong by more than 59 minutes counts for nothing: this node's clock takes its place, if there is no counter to go on
    -- from. Grants that do not look stay within that minute, so no hint that counts is ahead by more than an hour.
    local hint = asked
    if math.abs(hint - now) > 3540000000 and ARGV[4] ~= 'keep' then
      hint = last == 0 and now or 0
    end
    token = math.max(last + 1, hint)
    if token > 9007199254740991 then -- 2^53 - 1, the last integer Lua can count to
      return redis.error_reply('ERR the fencing token is exhausted: use another lock name')
    end
  end
  -- The counter is kept until the clock is a day past the token: the next token may come from the clock alone. It is also kept for a
  -- day longer than the lock, unless the client's clock is far behind. The first grant of each hour makes the expiry
  -- long enough for an hour more, and for TTLs of up to an hour; longer ones always look. It never becomes shorter, and a counter
  -- without an expiry, as Redisson makes them, gets none.
  local ahead, hour = math.max(0, (token - now) / 1000), now - now % 3600000000
  local keep = math.max(ttl, 3600000) + 90000000 + ahead
  if last == 0 and token == asked and ahead <= 3540000 and ttl <= 3600000 then
    redis.call('set', KEYS[4], ARGV[3], 'px', '97200000') -- most new counters: Lua saves the time to format the numbers
  elseif last == 0 or token > last and type(redis.pcall('incrby', KEYS[4], token - last)) ~= 'number' then
    -- The counter is new, or is no integer, or the user may not count.
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
local key, ms = KEYS[1], ARGV[2]
-- include expire.lua
return again and {2, token} or token
