-- Acquires a lock for an owner, or enters it again.
--
-- KEYS[1]  the lock: hash, owner -> hold count
-- KEYS[2]  the fencing token: integer
-- ARGV[1]  owner
-- ARGV[2]  TTL, ms
-- ARGV[3]  hold: the count the owner wants to have, 1 to acquire
-- ARGV[4]  token hint: a new grant's token is at least this
--
-- Reply    {0, pttl}   refused; ms until the holder's key expires, negative if there is no telling
--          {1, token}  granted anew
--          {2, token}  granted; the owner had the lock already
--
-- The count is set, not added to: the same call twice changes nothing the second time.
local hold = tonumber(ARGV[3])
local again = false
if hold ~= 1 or redis.call('exists', KEYS[1]) > 0 then
  local count = tonumber(redis.call('hget', KEYS[1], ARGV[1]) or 0)
  again = count > 0 and (count == hold or count == hold - 1)
  if not again then
    return {0, redis.call('pttl', KEYS[1])}
  end
end

-- All that can fail is looked at before anything is written.
local token = tonumber(redis.call('get', KEYS[2]) or 0)
if not token or token ~= token then
  return redis.error_reply('ERR the fencing token is not a number: delete ' .. KEYS[2])
end
if not again or token == 0 then
  token = math.max(token + 1, tonumber(ARGV[4]))
  if token > 9007199254740991 then -- 2^53 - 1, the last integer Lua can count to
    return redis.error_reply('ERR the fencing token is exhausted: use another lock name')
  end
end

redis.call('hset', KEYS[1], ARGV[1], hold)
redis.call('pexpire', KEYS[1], ARGV[2])
local now = redis.call('time')
local ahead = math.max(0, token / 1000 - now[1] * 1000)
redis.call('set', KEYS[2], string.format('%.0f', token), 'px', string.format('%.0f', ARGV[2] + 86400000 + ahead))
return {again and 2 or 1, token}
