-- Reads the leader at one instant: the holder of the lock, and the value that this owner published.
--
-- KEYS[1]  the lock: hash, see holds.lua
-- KEYS[2]  the leader's value: see proclaim.lua
--
-- Reply    {held, pttl, leader}: held has the fields and values of the lock's hash, and is empty if
--          the lock is free; pttl is negative if the key has no expiry; leader is {token, version,
--          value}, and empty if the holder has published no value
--
-- A value whose owner does not hold the lock has no leader, however long its key lasts.
local held = redis.pcall('hgetall', KEYS[1])
if held.err then
  return string.find(held.err, 'WRONGTYPE', 1, true) and redis.error_reply('NOTALOCK WRONGTYPE') or held
end
local leader, holder = {}, held[1] ~= 'mode' and held[1] or held[3]
if holder then
  local owner = redis.pcall('hget', KEYS[2], 'owner')
  if type(owner) == 'table' then
    return string.find(owner.err, 'WRONGTYPE', 1, true) and redis.error_reply('NOTAVALUE ' .. KEYS[2]) or owner
  end
  if owner == holder then
    leader = redis.call('hmget', KEYS[2], 'token', 'version', 'value')
  end
end
return {held, redis.call('pttl', KEYS[1]), leader}
