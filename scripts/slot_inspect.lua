-- Reads the state of a semaphore at one instant.
--
-- KEYS[1] to KEYS[5]  the semaphore: see slots.lua
-- ARGV[1]  how many waiters to return
--
-- Reply    {owners, ends, tokens, length, waiters, entries, now, permits}: owners are in the order
--          of their slots, each followed by its slot; ends are the ends of their holds in ms of the
--          node's clock, and may be past; tokens are their fencing tokens; permits is the number of
--          slots, 0 if it is unknown; the rest is as in inspect.lua
-- include queue.lua
-- include holds.lua
-- include slots.lua
local wrong, number = check()
if wrong then
  return wrong
end
local owners, ends, tokens = redis.call('zrangebyscore', KEYS[5], 0, '+inf', 'withscores'), {}, {}
for i = 1, #owners, 2 do
  ends[#ends + 1] = redis.call('zscore', KEYS[1], owners[i]) or '0'
  tokens[#tokens + 1] = redis.call('hget', KEYS[4], string.format('%.0f', tonumber(owners[i + 1]))) or '0'
end
local waiters, entries = ARGV[1] ~= '0' and redis.call('zrange', KEYS[2], 0, ARGV[1] - 1, 'withscores') or {}, {}
for i = 1, #waiters, 2 do
  entries[#entries + 1] = redis.call('hget', KEYS[3], waiters[i]) or ''
end
return {owners, ends, tokens, redis.call('zcard', KEYS[2]), waiters, entries, clock(), number or 0}
