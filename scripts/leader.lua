-- Reads who leads, at one instant: who holds the lock, and the value that this owner has written.
--
-- KEYS[1]  the lock: hash, see holds.lua
-- KEYS[2]  the leader's value: see proclaim.lua
--
-- Reply    {held, pttl, leader}: held is empty if the lock is free, and otherwise its fields and values; pttl is
--          negative if the key has no expiry; leader is {token, version, value}, or empty if the owner who holds
--          the lock has written none
--
-- A value whose owner does not hold the lock is nobody's, however long its key lasts.
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
