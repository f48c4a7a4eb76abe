-- Reads the fencing token of a lock before the first write, since a script that fails must not have
-- written. Not a script of its own: acquire.lua and share.lua include it.
--
-- KEYS[4]  the fencing token: integer
-- ARGV[3]  token hint, in µs of the client's clock
--
-- It sets last, the last token, 0 if there is none; and asked, the hint.
local counter = redis.pcall('get', KEYS[4]) or 0
if type(counter) == 'table' and not string.find(counter.err, 'WRONGTYPE', 1, true) then
  return counter
end
local last = tonumber(counter)
if type(counter) == 'table' and type(redis.pcall('hlen', KEYS[4])) == 'number' then
  return redis.error_reply('NOTALOCK quorumlock_semaphore')
elseif not last or last ~= last then
  return redis.error_reply('ERR the fencing token is not a number: delete ' .. KEYS[4])
end
local asked = tonumber(ARGV[3])
