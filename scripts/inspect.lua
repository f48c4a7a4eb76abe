-- Reads the state of a lock at one instant.
--
-- KEYS[1], KEYS[2], KEYS[3]  the lock and its queue: see queue.lua
-- KEYS[4]  the fencing token: integer
-- ARGV[1]  how many waiters to return
--
-- Reply    {held, pttl, token, length, waiters, entries, now}: held has the fields of the lock's
--          hash, each followed by its value, and is empty if the lock is free; pttl is negative if
--          the key has no expiry; token is '0' if there is no counter; length is that of the queue;
--          waiters are the first in the queue, in order, each followed by its ticket; entries are
--          their stored entries; now is the node's clock in ms
local held, token = redis.pcall('hgetall', KEYS[1]), redis.pcall('get', KEYS[4]) or '0'
if held.err then
  if type(redis.pcall('zscore', KEYS[1], 'quorumlock_semaphore')) == 'string' then
    return redis.error_reply('NOTALOCK quorumlock_semaphore')
  end
  return string.find(held.err, 'WRONGTYPE', 1, true) and redis.error_reply('NOTALOCK WRONGTYPE') or held
elseif type(token) == 'table' and type(redis.pcall('hlen', KEYS[4])) == 'number' then
  return redis.error_reply('NOTALOCK quorumlock_semaphore')
elseif type(token) == 'table' then
  return string.find(token.err, 'WRONGTYPE', 1, true) and redis.error_reply('ERR the fencing token is not a number: delete ' .. KEYS[4]) or token
end
local waiters = ARGV[1] ~= '0' and redis.call('zrange', KEYS[2], 0, ARGV[1] - 1, 'withscores') or {}
local entries = {}
for i = 1, #waiters, 2 do
  entries[#entries + 1] = redis.call('hget', KEYS[3], waiters[i]) or ''
end
local time = redis.call('time')
return {
  held, redis.call('pttl', KEYS[1]), token,
  redis.call('zcard', KEYS[2]), waiters, entries, time[1] * 1000 + math.floor(time[2] / 1000)
}
