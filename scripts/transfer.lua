-- Transfers a hold from one owner to another, for Detach and Attach. The hold keeps its token.
--
-- KEYS[1]  the lock: see holds.lua
-- KEYS[2]  the fencing token: integer
-- ARGV[1]  owner of the caller
-- ARGV[2]  the other owner
-- ARGV[3]  'park' to pass the hold from the caller to the other owner, with a new TTL
--          'back' to pass it from the caller to the other owner; the expiry stays
--          <token> to pass it from the other owner to the caller, unless a later token was counted
--          here; the expiry stays
-- ARGV[4]  with 'park', the TTL, ms
--
-- Reply    {1, token, ttl}: passed on; token is the last one counted here, 0 if unknown; ttl is the
--                       remaining TTL in ms, -1 if there is none
--          {2, token, ttl}: the new owner has it already
--          {0, 0}: neither of the two has it, or a later token was counted
--          {3, 0, who}: another owner has it, and no later token was counted: most likely it was
--                       passed to that owner
--          {3, last, who}: another owner has it, and last was counted, a later token
local limit = tonumber(ARGV[3])
local from, to = limit and ARGV[2] or ARGV[1], limit and ARGV[1] or ARGV[2]
local counter = redis.call('get', KEYS[2])
local last = tonumber(counter or '0')
if not last or last ~= last then
  return redis.error_reply('ERR the fencing token is not a number: delete ' .. KEYS[2])
end
local held, again = redis.call('hget', KEYS[1], from), redis.call('hget', KEYS[1], to)
local late = limit and last > limit
if again and not late then
  return {2, last, redis.call('pttl', KEYS[1])}
elseif late or not held or #held > 12 then -- nobody passes a share: see holds.lua
  local all = limit and not held and not again and redis.call('hlen', KEYS[1]) <= 2 and redis.call('hgetall', KEYS[1]) or {}
  local who = all[1]
  if who == 'mode' then
    who = all[3]
  end
  return who and {3, late and last or 0, who} or {0, 0}
end
redis.call('hset', KEYS[1], to, held)
redis.call('hdel', KEYS[1], from)
if ARGV[3] == 'park' then
  local before, key, ms = redis.call('pttl', KEYS[1]), KEYS[2], ARGV[4]
  redis.call('pexpire', KEYS[1], ms)
  -- include earlier.lua
  -- include outlive.lua
end
return {1, last, redis.call('pttl', KEYS[1])}
