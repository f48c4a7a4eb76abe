-- Acquires a share of a lock for an owner. Any number of owners share a lock; nobody holds it then.
--
-- KEYS[1], KEYS[2], KEYS[3]  the lock and its queue: see queue.lua
-- KEYS[4]  the fencing token: integer
-- ARGV[1]  owner
-- ARGV[2]  TTL, ms
-- ARGV[3]  token hint, in µs of the client's clock: see acquire.lua
-- ARGV[4]  mode:
--          'try'   acquires if no waiter that wants the lock alone is queued
--          'keep'  acquires past the queue: restores a share that this node has lost
--          <entry> acquires for a waiter if no waiter before it wants the lock alone, and queues it
--                  otherwise. Shares of successors of earlier attempts become the owner's
-- ARGV[5]  the cells of the owner that have this lock's name, as `<first> <last>`, or empty: a
--          server with two addresses counts once
--
-- Reply    as that of acquire.lua. The token is that of the last hold; a later hold has a higher
--          one. Where many share the lock, a refusal names nobody
local waiter, entry = string.match(ARGV[4], '^(%S+) (.*)$') -- nil in other modes
local queued = redis.call('exists', KEYS[2]) > 0

-- One command reads the mode, and any shares of the owner from other addresses of this server.
local first, last = string.match(ARGV[5], '(%d+) (%d+)')
local base, own = string.match(ARGV[1], '^(.*%.)(%d+)$')
local names = {'mode'}
for cell = tonumber(first or 0), first and base and tonumber(last) or -1 do
  if cell ~= tonumber(own) then
    table.insert(names, base .. cell)
  end
end
local shares = redis.pcall('hmget', KEYS[1], unpack(names)) -- after an error, mode is nil
local mode = shares[1]
for i = 2, mode == 'shared' and #names or 0 do
  if shares[i] then
    local time = redis.call('time')
    local left = tonumber(shares[i]) + 1 - time[1] * 1000 - math.floor(time[2] / 1000)
    if left > 0 then
      return {0, left, -1, names[i]}
    end
  end
end

-- Most sharers find no queue and are at their first attempt. They skip this part.
local number = entry and tonumber(string.match(entry, ' (%d+) %S+$') or '') or 1
if queued or number > 1 or mode ~= 'shared' and (mode or redis.call('exists', KEYS[1]) > 0) then
  -- include queue.lua
  -- include holds.lua
  -- include join.lua
  -- include successor.lua
  -- include sharers.lua
  -- include handoff.lua
  local fields = mode == 'shared' and first and redis.call('hlen', KEYS[1]) or 0
  local many = fields > FEW and not looks(fields)
  local held, shared = {''}, true
  local former = {} -- successors of earlier attempts: the waiter has been served
  if many then
    -- An attempt that ran here has taken over earlier shares. Shares of older attempts are over
    -- within two seconds.
    local now = clock()
    for attempt = math.max(number - FEW, 1), own and number - 1 or 0 do
      local owner = string.format('%s/%.0f.%s', waiter, attempt, own)
      if (tonumber(redis.call('hget', KEYS[1], owner) or '') or -1) >= now then
        table.insert(former, owner)
      end
    end
  else
    held, shared = look()
    if not held then
      return shared -- the error
    end
    for i = 1, waiter and shared and #held or 0, 2 do
      if isSuccessor(held[i], waiter, attemptIn(entry)) then
        table.insert(former, held[i])
      end
    end
  end
  local open, blocked = shared or not held[1], nil
  if ARGV[4] ~= 'keep' and not former[1] then
    local now = clock()
    local wasQueued = waiter and (queued or not open) and join(waiter, entry, now)
    if open then
      local stored
      blocked, stored = sharers(waiter, now)
      if blocked and held[1] then
        hasten(blocked, stored, now)
      end
    elseif wasQueued then
      front(waiter, now) -- drops the dead before it
    end
    if blocked and not held[1] then
      return {4, callFirst(waiter, now), waiter and redis.call('zrank', KEYS[2], waiter) or -1, blocked, waiter and now or nil}
    end
  end
  if blocked or not open then
    if waiter and not open then
      forget(waiter)
    end
    return {shared and 7 or 0, expiry(held, shared and not many), waiter and redis.call('zrank', KEYS[2], waiter) or -1, least(held), waiter and clock() or nil}
  end
  if waiter then
    drop(waiter)
    if former[1] then
      redis.call('hdel', KEYS[1], unpack(former))
    end
    local now = clock()
    local two, stored = front(nil, now)
    -- Later deadlines are those of waiters that have not been called.
    if two[1] and wantsShare(stored[1]) and deadline(stored[1]) > now + CLAIM then
      admit(nil, now)
    end
  end
end

-- include counter.lua
local time = redis.call('time')
local now = time[1] * 1000000 + time[2]
local token = last
if token == 0 or ARGV[4] == 'keep' and asked > token then
  -- There is no counter to go on from: see acquire.lua.
  token = (ARGV[4] == 'keep' or math.abs(asked - now) <= 3540000000) and asked or now
  local left, ahead = redis.call('pttl', KEYS[4]), math.max(0, (token - now) / 1000)
  if left == -1 then
    redis.call('set', KEYS[4], string.format('%.0f', token))
  else
    redis.call('set', KEYS[4], string.format('%.0f', token), 'px', string.format('%.0f', math.max(left, ARGV[2] + 93600000 + ahead)))
  end
else
  local key, ms = KEYS[4], ARGV[2]
  -- include outlive.lua
end
local ends = string.format('%013.0f', math.floor(now / 1000) + ARGV[2])
local again = redis.call('hset', KEYS[1], ARGV[1], ends, 'mode', 'shared') == 0
if redis.call('pttl', KEYS[1]) < tonumber(ARGV[2]) then
  local key, ms = KEYS[1], ARGV[2]
  -- include expire.lua
end
return again and {2, token} or token
