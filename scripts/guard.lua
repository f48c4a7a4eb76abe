-- The restart guard. Not a script of its own: it stands before acquire.lua, share.lua,
-- transfer.lua, ready.lua and slot_acquire.lua for clients that ask for it.
--
-- KEYS[1]  the lock
-- ARGV[#ARGV]  `<quarantine> <server> <age>`. Until a server is known to be as old as the
--              quarantine (ms), it refuses each lock that it does not have: it may have lost one
--              that is still held. The caller knows that the server was at least age ms old when
--              it made the call; server is empty, and age 0, if the caller knows nothing
--
-- Reply    {3, left, age, server}  refused, for left ms more; the server is known to be age ms old.
--                                  Otherwise the reply of the script that follows
--
-- The guard applies only if the lock does not exist or is shared. A lock that exists and is not
-- shared was not lost, or has been held by another owner since; acquire.lua grants it to that owner
-- alone. The sharers of a shared lock may have left before a hold that was lost. Before
-- slot_acquire.lua and transfer.lua the guard always applies: an existing semaphore may lack slots.
--
-- All times of a server move with its clock, even its uptime in INFO. So the clients count its age,
-- each from its first refusal. The key quorumlock_age keeps the greatest age that any of them
-- knows, for the others. It is written every second of a quarantine, and later when the age has
-- doubled.
--
-- A server is a process (run_id) that writes one history (master_replid). A replica that takes over
-- may lack its master's last writes, and continues under a new ID; master_replid2 is the former
-- one, which Redis forgets some time after the last replica has gone. So a server keeps its age
-- under a new ID only if it has no former one and the key, which a replica copies from its master,
-- names its process.
if redis.pcall('hget', KEYS[1], 'mode') == 'shared' or redis.call('exists', KEYS[1]) == 0 then
  local function field(info, name)
    local _, last = string.find(info, '\n' .. name .. ':', 1, true)
    return last and string.match(info, '^%w+', last + 1)
  end
  local server, replication = redis.pcall('info', 'server'), redis.pcall('info', 'replication')
  if type(server) ~= 'string' or type(replication) ~= 'string' then
    return redis.error_reply('ERR the restart guard cannot read INFO: allow the user +info')
  end
  local run, id, former = field(server, 'run_id'), field(replication, 'master_replid'), field(replication, 'master_replid2')
  if not run or not id or not former then
    return redis.error_reply('ERR the restart guard finds no run_id and replication id in INFO: use it on Redis or Valkey only')
  end
  local kept = redis.pcall('get', 'quorumlock_age')
  if type(kept) == 'table' then
    return redis.error_reply('ERR the restart guard cannot use the key quorumlock_age: ' .. kept.err)
  end

  local named = string.match(kept or '', '^(%S+) %d+$')
  local same = named and string.match(named, '^(.*):') == run and not string.find(former, '[^0]')
  local function ageOf(known, age)
    local itself = known == run .. ':' .. id or same and string.match(known or '', '^(.*):') == run
    return itself and tonumber(age) or 0
  end
  local limit, known, claim = string.match(ARGV[#ARGV], '^(%d+) (%S*) (%d+)$')
  local quarantine, age = tonumber(limit), ageOf(string.match(kept or '', '^(%S+) (%d+)$'))
  claim = ageOf(known, claim)
  if claim >= (age < quarantine and math.min(age + 1000, quarantine) or 2 * age) then
    redis.call('set', 'quorumlock_age', string.format('%s:%s %.0f', run, id, claim))
  end
  age = math.max(age, claim)
  if age < quarantine then
    if field(replication, 'role') == 'slave' then
      return redis.error_reply('READONLY the server is a replica')
    end
    return {3, quarantine - age, age, run .. ':' .. id}
  end
end
