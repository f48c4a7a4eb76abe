-- Reads the owners of a lock, and the ends of their holds. Not a script of its own: scripts include
-- it after queue.lua, with the keys named there.

-- least returns one of a lock's owners: nodes with the same owners return the same one.
local function least(held)
  local who = held[1]
  for i = 3, #held, 2 do
    who = held[i] < who and held[i] or who
  end
  return who
end

-- culprit returns the field that best shows the kind of a hash that is no lock: that of a latch or
-- of Redisson's read-write lock, or else the given field.
local function culprit(field)
  local mode = redis.call('hget', KEYS[1], 'mode')
  if not mode or mode == 'mutex' or mode == 'shared' then
    return field
  end
  return mode == 'latch' and 'quorumlock_latch' or 'mode'
end

-- look reads the lock. It returns the owners, each followed by its value, and whether they share;
-- or nil and an error. It drops shares that are over.
--
-- A held lock has the field `<owner>` -> hold count, beside `mode` -> 'mutex'. A hold of Redisson's
-- has no mode, and its owner is `<uuid>:<thread>`. A shared lock has `mode` -> 'shared', and for
-- each owner the end of its share, in ms of the node's clock: a number of 13 digits or more, as no
-- hold count has. (Redisson's read-write lock checks the mode, and stays out.) A share lasts as
-- long as a key would: until the clock is past its end.
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
      return nil, redis.error_reply('NOTALOCK ' .. culprit(all[i]))
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
      for i = 1, #over, 1000 do -- unpack is limited to some thousands
        redis.call('hdel', KEYS[1], unpack(over, i, math.min(i + 999, #over)))
      end
    end
    return living, true
  elseif #held > 2 or held[1] and not mode and string.match(held[1], '^%x+%-%x+%-%x+%-%x+%-%x+():%d+$') ~= 37 then
    return nil, redis.error_reply('NOTALOCK ' .. least(held))
  end
  return held, false
end

-- looks tells whether a call should read all fields of a shared lock that has so many: always if
-- they are few, and else in some calls, chosen by the clock, so that a call reads FEW on average.
local function looks(fields)
  return redis.call('time')[2] % fields < FEW
end

-- isCrowded tells whether many owners share the lock and one of their shares lasts. One such share
-- is enough to refuse a writer, so most calls read only some shares. If all of these are over, the
-- call reads all shares, and look drops those that are over.
local function isCrowded()
  local fields = redis.pcall('hlen', KEYS[1])
  if type(fields) == 'table' or fields <= FEW or redis.call('hget', KEYS[1], 'mode') ~= 'shared' or looks(fields) then
    return false
  end
  local some, now = redis.pcall('hscan', KEYS[1], 0, 'count', FEW), clock()
  for i = 2, #(some[2] or ''), 2 do
    if #some[2][i] > 12 and (tonumber(some[2][i]) or -1) >= now then
      return true
    end
  end
  return false
end

-- expiry returns in how many ms the owners that look has found lose the lock unless they renew it;
-- negative if unknown.
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
