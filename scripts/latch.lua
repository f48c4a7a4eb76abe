-- Adds ids to a latch, and reads it. Nothing is ever removed from a latch, so a repeated call
-- changes nothing.
--
-- KEYS[1]  the latch: hash, 'quorumlock_latch' -> '<n> <server>', or '<n> <server> open' once it is
--          open; and 'mode' -> 'latch', which keeps out Redisson's read-write locks
-- KEYS[2]  its ids, until it is open: zset, each scored by its number in the order of arrival, from
--          1; and '' scored by -1 - digest. The digest is the sum of the ids' hashes modulo 2^52. A
--          hash is the first 13 hexadecimal digits of the SHA-1.
-- KEYS[3]  the fencing token of a lock of that name
-- ARGV[1]  n: how many ids open the latch
-- ARGV[2]  mode:
--          'read'     changes nothing
--          'keep'     adds the ids if the latch exists: the caller has seen it before
--          'make'     adds the ids, and creates the latch if it does not exist
--          'restore'  like 'make', for a latch that exists at another node
--          'open'     like 'restore', and opens it, however many ids it has
-- ARGV[3]  retention, ms: how long the latch is kept from now on
-- ARGV[4]  a name for this server, stored if the latch is created: two addresses of one server then
--          return the same name
-- ARGV[5]  the channel on which the opening is published
-- ARGV[6]  tail: how many of the latest ids the reply has
-- ARGV[7]  cut: -1, or how many of its first ids the node compares, without those given here
-- ARGV[8...]  the ids, each once
--
-- Reply    {state, server, count, digest, ids}: state is 0 if the latch does not exist, 1 if it is
--          closed, 2 if it is open. count and digest are of all ids, or of those compared; both are
--          0 if the latch is open.
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
    -- A lock of this library has a mode beside its owners.
    local own = held[i] == 'mode' and (held[i + 1] == 'mutex' or held[i + 1] == 'shared')
    -- A field that no lock has is more telling than an owner; the mode of a read-write lock of
    -- Redisson's is most telling.
    if not own and field ~= 'mode' and (not field or not string.find(held[i], '^%S+:%d[%d/.]*$')) then
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
-- Everything that can fail is checked before the first write.
local digest = redis.pcall('zscore', KEYS[2], '')
if type(digest) == 'table' then
  return string.find(digest.err, 'WRONGTYPE', 1, true) and redis.error_reply('WRONGKIND ids') or digest
end
local count = redis.call('zcard', KEYS[2]) - (digest and 1 or 0)
digest = digest and -1 - digest or 0

local function hash(id)
  local sha = redis.sha1hex(id)
  return tonumber(string.sub(sha, 1, 7), 16) * 16777216 + tonumber(string.sub(sha, 8, 13), 16)
end

if what ~= 'read' and (stored or what ~= 'keep') then
  local before = stored
  server, open = server or ARGV[4], open or ''
  if open == '' then
    local had = count
    for i = 8, #ARGV do
      -- The first write: a full server refuses it.
      if redis.call('zadd', KEYS[2], 'nx', count + 1, ARGV[i]) == 1 then
        count, digest = count + 1, (digest + hash(ARGV[i])) % 4503599627370496
      end
    end
    if count > had then
      redis.call('zadd', KEYS[2], string.format('%.0f', -1 - digest), '')
    end
    local key, ms = KEYS[2], ARGV[3]
    -- include expire.lua
    open = (what == 'open' or count >= tonumber(n)) and ' open' or ''
  end
  stored = n .. ' ' .. server .. open
  if stored ~= before then
    redis.call('hset', KEYS[1], 'quorumlock_latch', stored, 'mode', 'latch')
    if open ~= '' then
      redis.call('del', KEYS[2])
      redis.pcall('publish', ARGV[5], 'open') -- open even if the user may not publish
    end
  end
  if redis.call('pttl', KEYS[1]) < tonumber(ARGV[3]) then
    redis.call('pexpire', KEYS[1], ARGV[3])
  end
  -- The ids last as long as the latch, which another caller may keep for longer.
  redis.call('pexpire', KEYS[2], redis.call('pttl', KEYS[1]))
end
if stored and open ~= '' then
  return {2, server, 0, 0, {}}
end
local ids, cut = {}, tonumber(ARGV[7])
if ARGV[6] ~= '0' then
  ids = redis.call('zrange', KEYS[2], math.max(count - ARGV[6], 0) + 1, -1) -- '' is the first
end
if cut >= 0 then
  local function without(id)
    count, digest = count - 1, (digest - hash(id)) % 4503599627370496
  end
  for _, id in ipairs(redis.call('zrange', KEYS[2], cut + 1, -1)) do
    without(id)
  end
  for i = 8, #ARGV do
    if tonumber(redis.call('zscore', KEYS[2], ARGV[i])) <= cut then
      without(ARGV[i])
    end
  end
end
return {stored and 1 or 0, server or '', count, digest, ids}
