-- Adds ids to a latch, and reads it. Nothing is ever taken out of a latch, so the same call twice changes nothing the
-- second time.
--
-- KEYS[1]  the latch: hash, 'quorumlock_latch' -> '<n> <server>', or '<n> <server> open' once it is open
-- KEYS[2]  its ids, until it is open: zset, all with one score, so that they are in the order of their bytes
-- KEYS[3]  the fencing token of a lock of that name
-- ARGV[1]  n: how many ids open the latch
-- ARGV[2]  what to do:
--          'read'     change nothing
--          'keep'     add the ids if the latch is there: the caller has seen it before
--          'make'     add the ids, and make the latch if it is not there
--          'restore'  the same, for a latch that another node has
--          'open'     the same, and open it, however many ids it has
-- ARGV[3]  retention, ms: for how long the latch is kept from now on
-- ARGV[4]  a name for this server, for a latch that is made: two addresses of one server give the same one then
-- ARGV[5]  the channel on which it is told that the latch opens
-- ARGV[6...]  the ids
--
-- Reply    {state, server, ids}: state is 0 if the latch is not there, 1 if it is closed, 2 if it is open; no ids are
--          given of a latch that is open
local n, what = ARGV[1], ARGV[2]
local stored = redis.pcall('hget', KEYS[1], 'quorumlock_latch')
if type(stored) == 'table' then
  if not string.find(stored.err, 'WRONGTYPE', 1, true) then
    return stored
  end
  local isString = type(redis.pcall('get', KEYS[1])) == 'string'
  if type(redis.pcall('zscore', KEYS[1], 'quorumlock_semaphore')) == 'string' then
    return redis.error_reply('WRONGKIND semaphore')
  end
  return redis.error_reply('WRONGKIND ' .. (isString and 'string' or 'type'))
end
if not stored then
  local held, field = redis.call('hgetall', KEYS[1]), nil
  for i = 1, #held, 2 do
    local own = held[i] == 'mode' and (held[i + 1] == 'mutex' or held[i + 1] == 'shared') -- beside the owners of a lock
    if not own and (not field or not string.find(held[i], '^%S+:%d[%d/.]*$')) then -- a field that no lock has says more
      field = held[i]
    end
  end
  if field then
    return redis.error_reply('WRONGKIND field ' .. field)
  elseif what == 'make' and redis.call('exists', KEYS[3]) == 1 then
    return redis.error_reply('WRONGKIND token')
  end
end
local needed, server, open = string.match(stored or '', '^(%d+) (%S+)(.*)$')
if stored and needed ~= n then
  return redis.error_reply('LATCH ' .. stored)
end
-- Everything that can fail is checked before anything is written.
local count = redis.pcall('zcard', KEYS[2])
if type(count) == 'table' then
  return string.find(count.err, 'WRONGTYPE', 1, true) and redis.error_reply('WRONGKIND ids') or count
end

if what ~= 'read' and (stored or what ~= 'keep') then
  local before = stored
  server, open = server or ARGV[4], open or ''
  if open == '' then
    for i = 6, #ARGV do
      count = count + redis.call('zadd', KEYS[2], '0', ARGV[i]) -- the first write: a full server refuses it
    end
    local key, ms = KEYS[2], ARGV[3]
    -- include expire.lua
    open = (what == 'open' or count >= tonumber(n)) and ' open' or ''
  end
  stored = n .. ' ' .. server .. open
  if stored ~= before then
    redis.call('hset', KEYS[1], 'quorumlock_latch', stored)
    if open ~= '' then
      redis.call('del', KEYS[2])
      redis.pcall('publish', ARGV[5], 'open') -- it is open even if the user may not publish
    end
  end
  if redis.call('pttl', KEYS[1]) < tonumber(ARGV[3]) then
    redis.call('pexpire', KEYS[1], ARGV[3])
  end
  -- The ids last as long as the latch, which somebody may keep for longer than the caller does.
  redis.call('pexpire', KEYS[2], redis.call('pttl', KEYS[1]))
end
if not stored then
  return {0, '', redis.call('zrange', KEYS[2], 0, -1)}
elseif open ~= '' then
  return {2, server, {}}
end
return {1, server, redis.call('zrange', KEYS[2], 0, -1)}
