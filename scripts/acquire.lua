-- Acquires a lock for an owner, or enters it again.
--
-- KEYS[1]  the lock: hash, owner -> hold count
-- KEYS[2], KEYS[3]  the line: see line.lua
-- KEYS[4]  the fencing token: integer
-- ARGV[1]  owner
-- ARGV[2]  TTL, ms
-- ARGV[3]  hold: the count the owner wants to have, 1 to acquire
-- ARGV[4]  token hint: a new grant's token is at least this
-- ARGV[5]  how the line is met:
--          'try'   acquires if nobody stands in line
--          'keep'  acquires past the line: a holder gets back what this node has lost
--          <place> by a waiter: it acquires if it is the first, and stands in line otherwise. What was
--                  handed to an heir of a former attempt becomes the owner's
--
-- Reply    {0, pttl, place}  refused; ms until the holder's key expires, negative if there is no
--                            telling; the waiter's place in line from 0, -1 if it has none
--          {1, token, -1}    granted anew
--          {2, token, -1}    granted; the owner had the lock already
--
-- The count is set, not added to: the same call twice changes nothing the second time.
local hold = tonumber(ARGV[3])
local again = false
local former -- an heir of the waiter's who has the lock

-- Nobody holds and nobody waits: most locks are like that, and cost no more than they must.
if hold ~= 1 or redis.call('exists', KEYS[1], KEYS[2]) > 0 then
  -- include line.lua
  local waiter, place = string.match(ARGV[5], '^(%S+) (.*)$') -- nil for the other two
  local pttl = redis.call('pttl', KEYS[1])
  if pttl ~= -2 then
    local held = redis.call('hgetall', KEYS[1])
    for i = 1, #held, 2 do
      local count = tonumber(held[i + 1])
      again = again or held[i] == ARGV[1] and (count == hold or count == hold - 1)
      if waiter and isHeir(held[i], waiter, place) then
        former, pttl = held[i], -2
      end
    end
  end
  local free = pttl == -2 and hold == 1
  if not again then
    local mine = free and (former or ARGV[5] == 'keep' or redis.call('zrange', KEYS[2], 0, 0)[1] == waiter)
    if not mine then
      local now = clock()
      -- Joining comes before looking: a lower ticket that comes to a free lock is the first.
      local stood = waiter and join(waiter, place, now)
      -- A refresh looks while somebody holds, too: else the dead would gather, and keep the living far back.
      local dropped
      if free or stood then
        local two, _
        two, _, dropped = front(waiter, now)
        mine = free and two[1] == waiter
      end
      if not mine then
        if free and dropped then
          wake(waiter, now)
        end
        return {0, pttl, waiter and redis.call('zrank', KEYS[2], waiter) or -1}
      end
    end
    if waiter then
      drop(waiter)
    end
  end
end

-- All that can fail is looked at before the lock is written.
local token = tonumber(redis.call('get', KEYS[4]) or 0)
if not token or token ~= token then
  return redis.error_reply('ERR the fencing token is not a number: delete ' .. KEYS[4])
end
if not again or token == 0 then
  token = math.max(token + 1, tonumber(ARGV[4]))
  if token > 9007199254740991 then -- 2^53 - 1, the last integer Lua can count to
    return redis.error_reply('ERR the fencing token is exhausted: use another lock name')
  end
end

if former then
  redis.call('hdel', KEYS[1], former)
end
redis.call('hset', KEYS[1], ARGV[1], hold)
redis.call('pexpire', KEYS[1], ARGV[2])
-- The counter is kept for a day longer than the lock, and until the clock is a day past the token: the
-- next token may come from the clock alone.
local now = redis.call('time')
local ahead = math.max(0, token / 1000 - now[1] * 1000)
redis.call('set', KEYS[4], string.format('%.0f', token), 'px', string.format('%.0f', ARGV[2] + 86400000 + ahead))
return {again and 2 or 1, token, -1}
