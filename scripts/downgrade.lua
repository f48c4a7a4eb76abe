-- Turns an owner's hold into a share with a fresh TTL. A share gets a fresh TTL, too.
--
-- KEYS[1], KEYS[2], KEYS[3]  the lock and its queue: see queue.lua
-- KEYS[4]  the fencing token: integer; kept for a minute longer than the lock
-- ARGV[1]  owner
-- ARGV[2]  TTL, ms
--
-- Reply    1 shared, 0 the owner does not have the lock
local held = redis.call('hmget', KEYS[1], ARGV[1], 'mode')
if not held[1] then
  return 0
end
-- include queue.lua
-- include handoff.lua
local now = clock()
local shared = held[2] == 'shared'
if shared and tonumber(held[1]) < now then
  return 0
end
redis.call('hset', KEYS[1], ARGV[1], string.format('%013.0f', now + ARGV[2]), 'mode', 'shared')
local before, key, ms = redis.call('pttl', KEYS[1]), KEYS[4], ARGV[2]
if not shared or before < tonumber(ms) then
  redis.call('pexpire', KEYS[1], ms)
end
if not shared then
  -- include earlier.lua
end
-- include outlive.lua
if not shared then
  admit(nil, now, true, true)
end
return 1
