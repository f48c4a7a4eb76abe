-- The restart guard. This is not a script: it is put before acquire.lua and share.lua for clients that ask for it.
--
-- KEYS[1]  the lock
-- ARGV[#ARGV]  quarantine, ms: for this long after its start a server grants no lock that it does not have,
--              since it may have lost one that is still held
--
-- Reply    {3, ms, -1}  refused, for that many ms more; otherwise the reply of acquire.lua
--
-- The guard asks only if the lock is not there, or is shared. A lock that is there and is not shared was not lost, or has been
-- held since by somebody else, to whom alone acquire.lua grants it. But whoever shares it may have left before what was lost.
-- Before slot_acquire.lua it always asks: a semaphore that is there may lack slots.
--
-- A replica that takes over may lack its master's last writes, however long it has been up. INFO does
-- not say when it took over. So the quarantine begins with the first call after that; its time is kept in
-- the key quorumlock_promoted, with the replication ID.
if redis.pcall('hget', KEYS[1], 'mode') == 'shared' or redis.call('exists', KEYS[1]) == 0 then
  local function field(info, name)
    local _, last = string.find(info, '\n' .. name .. ':', 1, true)
    return last and string.match(info, '^[-%x]+', last + 1)
  end
  local server, replication = redis.pcall('info', 'server'), redis.pcall('info', 'replication')
  if type(server) ~= 'string' or type(replication) ~= 'string' then
    return redis.error_reply('ERR the restart guard cannot read INFO: allow the user +info')
  end
  local uptime = tonumber(field(server, 'uptime_in_seconds'))
  local id, former = field(replication, 'master_replid'), field(replication, 'master_replid2')
  if not uptime or not id or not former then
    return redis.error_reply('ERR the restart guard finds no uptime and replication id in INFO: use it on Redis or Valkey only')
  end

  local quarantine = tonumber(ARGV[#ARGV])
  local left = quarantine - (uptime - 1) * 1000 -- the clock's seconds are whole, at both ends
  if string.find(former, '[^0]') then
    local t = redis.call('time')
    local now = t[1] * 1000 + math.floor(t[2] / 1000)
    local known, since = string.match(redis.call('get', 'quorumlock_promoted') or '', '^(%x+) (%d+)$')
    if known ~= id or tonumber(since) > now then
      since = now
      redis.call('set', 'quorumlock_promoted', id .. ' ' .. string.format('%.0f', now))
    end
    left = math.max(left, quarantine - (now - since))
  end
  if left > 0 then
    return {3, left, -1}
  end
end
