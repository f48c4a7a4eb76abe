-- Gives a lock a fresh TTL, if the owner holds or shares it.
--
-- KEYS[1]  the lock: see holds.lua
-- KEYS[2]  the fencing token: integer; kept for a minute longer than the lock
-- ARGV[1]  owner
-- ARGV[2]  TTL, ms
--
-- Reply    1 renewed, 0 the owner does not hold the lock
local held = redis.call('hget', KEYS[1], ARGV[1])
if not held then
  return 0
end
local before = redis.call('pttl', KEYS[1])
if #held > 12 then -- a share: see holds.lua
  local time = redis.call('time')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local share = tonumber(held)
  if share < now then
    return 0
  end
  redis.call('hset', KEYS[1], ARGV[1], string.format('%013.0f', now + ARGV[2]))
  if before < tonumber(ARGV[2]) then
    redis.call('pexpire', KEYS[1], ARGV[2])
  elseif share > now + ARGV[2] then
    local fields = redis.call('hlen', KEYS[1])
    -- include ending.lua
  end
else
  local ms = ARGV[2]
  redis.call('pexpire', KEYS[1], ms)
  -- include earlier.lua
end
local key, ms = KEYS[2], ARGV[2]
-- include outlive.lua
return 1
