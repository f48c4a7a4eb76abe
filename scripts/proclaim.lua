-- Publishes the value of a leader, or the data of a hold, beside the lock, or renews its TTL.
--
-- KEYS[1]  the lock: hash, owner -> hold count
-- KEYS[2]  the leader's value: hash with the fields owner, token, version and value
-- ARGV[1]  owner: the leader
-- ARGV[2]  TTL, ms
-- ARGV[3]  the fencing token of the leader
-- ARGV[4]  version: counts the values of this leader, from 1; 0 for the data of a hold
-- ARGV[5]  the channel on which a new leader or value is published
-- ARGV[6]  the value; absent for a renewal
--
-- Reply    1 the node has that version, for another TTL
--          0 the owner does not hold the lock, or has published a later version
--          2 the node does not have that version: send the value
--          3 an owner with a higher token has published a value
--
-- A repeated call changes nothing but the TTL.
local holds = redis.pcall('hexists', KEYS[1], ARGV[1])
if type(holds) == 'table' then
  return string.find(holds.err, 'WRONGTYPE', 1, true) and redis.error_reply('NOTALOCK WRONGTYPE') or holds
elseif holds == 0 then
  return 0
end
local was = redis.pcall('hmget', KEYS[2], 'owner', 'token', 'version')
if was.err then
  return string.find(was.err, 'WRONGTYPE', 1, true) and redis.error_reply('NOTAVALUE ' .. KEYS[2]) or was
end
local token, version = tonumber(was[2] or 0) or 0, tonumber(was[3] or 0) or 0
if token > tonumber(ARGV[3]) then
  return 3
end
if was[1] ~= ARGV[1] or version < tonumber(ARGV[4]) then
  if not ARGV[6] then
    return 2
  end
  -- The first write: a full server refuses it.
  redis.call('hset', KEYS[2], 'owner', ARGV[1], 'token', ARGV[3], 'version', ARGV[4], 'value', ARGV[6])
  local key, ms = KEYS[2], ARGV[2]
  -- include expire.lua
  -- Published even if the user may not publish.
  redis.pcall('publish', ARGV[5], ARGV[3] .. ' ' .. ARGV[4])
elseif version > tonumber(ARGV[4]) then
  return 0
end
redis.call('pexpire', KEYS[2], ARGV[2])
return 1
