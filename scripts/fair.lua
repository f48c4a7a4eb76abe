-- Notifies the waiters of a fair lock of Redisson's. Not a script of its own: scripts include it.

-- tellFair notifies the next waiters of a fair lock of Redisson's that the lock may be free, or ends
-- earlier. Each has a channel of its own. The first may be dead, so the second is notified, too.
local function tellFair(channel)
  for _, thread in ipairs(redis.pcall('lrange', 'redisson_lock_queue' .. string.sub(channel, 23), 0, 1)) do
    redis.pcall('publish', channel .. ':' .. thread, '0')
  end
end
