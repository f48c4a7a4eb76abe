-- Releases the lock, whoever holds it, and wakes the first in the queue. A key that is no lock stays.
--
-- KEYS[1]  the lock: hash, owner -> hold count
-- KEYS[2], KEYS[3]  the queue: see queue.lua
-- ARGV[1]  the channel that tells Redisson's waiters of a release
--
-- Reply    1 released, 0 nobody held it
local held = redis.call('hgetall', KEYS[1])
if #held == 0 then
  return 0
end
for i = 1, #held, 2 do
  if #held > 2 or not string.find(held[i + 1], '^%d+$') or #held[i + 1] > 15 or not string.find(held[i], '^%S+:%d[%d/.]*$') then
    return redis.error_reply('NOTALOCK ' .. held[i])
  end
end
redis.call('del', KEYS[1])
-- include queue.lua
redis.pcall('publish', ARGV[1], '0') -- it is released even if the user may not publish
wake(nil, clock())
return 1
