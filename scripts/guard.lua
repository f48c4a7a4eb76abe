-- The restart guard. Not a script of its own: it stands before acquire.lua, share.lua,
-- transfer.lua, ready.lua and slot_acquire.lua for clients that ask for it.
--
-- KEYS[1]  the lock
-- ARGV[#ARGV]  quarantine, ms: for this long after its start, a server grants no lock that it does
--              not have, since it may have lost one that is still held
--
-- Reply    {3, left, -1}  refused for left ms more; otherwise the reply of the script that follows
--
-- The guard applies only if the lock does not exist or is shared. A lock that exists and is not
-- shared was not lost, or has been held by another owner since; acquire.lua grants it to that owner
-- alone. The sharers of a shared lock may have left before a hold that was lost. Before
-- slot_acquire.lua and transfer.lua the guard always applies: an existing semaphore may lack slots.
--
-- A replica that takes over may lack its master's last writes, whatever its uptime. INFO does not
-- show when it took over, so the quarantine begins with the first call after that. The key
-- quorumlock_promoted keeps the time of that call and the replication ID.
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
  local left = quarantine - (uptime - 1) * 1000 -- both ends are in whole seconds
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
