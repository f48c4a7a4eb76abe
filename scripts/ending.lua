-- Makes the key of a shared lock expire with its last share, after the share that ended last was
-- released or shortened. Not a script of its own: scripts include it, with these locals:
--
-- share      the former end of that share, in ms of the node's clock
-- fields     the number of fields of the key
-- time, now  the node's clock, from TIME and in ms
--
-- Where many share the lock, some calls read all shares: see looks in holds.lua. It sets over: a
-- share is over.
local before, over = redis.call('pttl', KEYS[1]), false
if time[2] % fields < 16 and share + 1 >= now + before then -- 16 is FEW in queue.lua
  local all, last = redis.call('hgetall', KEYS[1]), 0
  for i = 2, #all, 2 do
    if #all[i] <= 15 and string.find(all[i], '^%d+$') then
      last = math.max(last, tonumber(all[i]))
      over = over or tonumber(all[i]) < now
    end
  end
  if last > 0 then
    local ms = math.max(last - now, 1)
    redis.call('pexpire', KEYS[1], ms)
    -- include earlier.lua
  end
end
