-- Acquires a slot of a semaphore for an owner.
--
-- KEYS[1] to KEYS[5]  the semaphore: see slots.lua
-- ARGV[1]  owner
-- ARGV[2]  TTL, ms
-- ARGV[3]  token hint, in µs of the client's clock: see acquire.lua
-- ARGV[4]  mode:
--          'keep<permits>'  acquires past the queue: restores a hold that this node has lost.
--                  Another slot of the owner here is released, and so is that of an earlier
--                  successor of its waiter. The semaphore has this number of slots from now on
--          <entry> acquires for a waiter if fewer waiters are before it than slots are free, and
--                  queues it otherwise. The slot of a successor of an earlier attempt becomes the
--                  owner's, unless the waiter prefers another slot. If the preferred slot is taken,
--                  the successor's is released, and the waiter is queued
-- ARGV[5]  the slot, for 'keep<permits>'
--
-- Reply    {5, token, slot}  granted; the owner had no slot before
--          {6, token, slot}  granted; the owner had the slot already
--          {0, ms, position, who, now}
--          {4, ms, position, who, now}  refused, as in acquire.lua. ms is until the first hold
--                  ends, and who has the lowest slot, or the one that was asked for
--          {8, slot, position, who, now}  refused: who has the preferred slot, the waiter takes no
--                  other, and this slot is free
--          an error, 'OTHERPERMITS <permits of the waiter> <permits>'
-- include queue.lua
-- include holds.lua
-- include join.lua
-- include successor.lua
-- include slots.lua
local wrong, number = check()
if wrong then
  return wrong
end
local time = redis.call('time')
local micros = time[1] * 1000000 + time[2]
local now = time[1] * 1000 + math.floor(time[2] / 1000)
prune(now)
local owner = ARGV[1]
local waiter, entry = string.match(ARGV[4], '^(%S+) (.*)$')
local k, wish, other = wants(entry)
local slot = tonumber(redis.call('zscore', KEYS[5], owner) or nil)
local again = slot ~= nil
local former
local gone -- the slot that was released, if any

local function refuse(status, who, ms)
  local first = redis.call('zrange', KEYS[1], 0, 0, 'withscores')
  return {status, ms or tonumber(first[2]) + 1 - now, waiter and redis.call('zrank', KEYS[2], waiter) or -1, who or '', waiter and now or nil}
end

if not waiter then
  local asked = tonumber(ARGV[5])
  k = tonumber(string.match(ARGV[4], '%d+$') or nil)
  if slot ~= asked then
    local who = redis.call('zrangebyscore', KEYS[5], asked, asked)[1]
    gone = give(owner)
    if who then
      if gone then
        serve(nil, now, false)
      end
      return refuse(0, who)
    end
    slot, again = asked, false
    -- A node that missed the attempt of this successor may have handed a slot to an earlier one.
    local name = string.match(owner, '(.*)/')
    former = name and successorOf(name)
    if former and not isSuccessor(former, name, attemptOf(owner)) then
      former = nil
    end
  end
elseif not again then
  if isOther(number, k) then
    return redis.error_reply(string.format('OTHERPERMITS %.0f %.0f', k, number))
  end
  local taken = other and redis.call('zcount', KEYS[5], wish, wish) > 0
  former = successorOf(waiter)
  if former and not isSuccessor(former, waiter, attemptIn(entry)) then
    former = nil
  end
  if former then
    slot = tonumber(redis.call('zscore', KEYS[5], former))
    if slot ~= wish then
      if redis.call('zcount', KEYS[5], wish, wish) > 0 then
        give(former)
        join(waiter, entry, now, true)
        -- Perhaps this very waiter: its next attempt may get the slot that is released now.
        serve(nil, now, false)
        return refuse(0, lowest())
      end
      slot = wish
    end
  elseif taken or redis.call('exists', KEYS[2]) == 1 or vacancies(k) == 0 then
    join(waiter, entry, now, true)
    local first = front(waiter, now)[1]
    local free = vacancies(k)
    if free == 0 then
      return refuse(0, lowest())
    elseif (redis.call('zrank', KEYS[2], waiter) or 0) >= free then
      -- A waiter that was called may have moved back with its sure ticket: now another is the last.
      callLast(free, now)
      return refuse(4, first, callFirst(waiter, now))
    elseif taken then
      return refuse(8, redis.call('zrangebyscore', KEYS[5], wish, wish)[1], vacant(k, other))
    end
  end
  slot = slot or vacant(k, wish)
end

-- Everything that can fail is checked before a slot is taken.
local last = tonumber(redis.call('hget', KEYS[4], slot) or 0)
if not last or last ~= last then
  return redis.error_reply('ERR the fencing token is not a number: delete ' .. KEYS[4])
end
local token = last
if not again or last == 0 then
  -- As in acquire.lua.
  local asked, oldest = tonumber(ARGV[3]), micros - 60000000
  if not waiter then
    token = math.max(last + 1, asked)
  elseif asked <= math.max(last, oldest - 1) or asked > micros + 60000000 then
    token = last >= oldest and last + 1 or micros - micros % 10000000 + 10000000
  else
    token = asked
  end
  if token > 9007199254740991 then
    return redis.error_reply('ERR the fencing token is exhausted: use another lock name')
  end
end
if former then
  gone = give(former)
end
local left = waiter and drop(waiter) == 1
assign(owner, slot, token, now, tonumber(ARGV[2]), k)
-- As after a yield, waiters are only called: they ask for their preferred slot. If the waiter had a
-- slot already, a free one is left for the next.
if gone and gone ~= slot or left and (gone or again) then
  serve(nil, now, false)
end
return {again and 6 or 5, token, slot}
