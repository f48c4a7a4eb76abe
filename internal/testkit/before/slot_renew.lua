-- Gives a slot of a semaphore a fresh TTL, if the owner has it.
--
-- KEYS[1] to KEYS[5]  the semaphore: see slots.lua
-- ARGV[1]  owner
-- ARGV[2]  TTL, ms
-- ARGV[3]  slot
--
-- Reply    1 renewed, 0 the owner does not have this slot
local slot, ends = redis.call('zscore', KEYS[5], ARGV[1]), redis.call('zscore', KEYS[1], ARGV[1])
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if not slot or not ends or tonumber(slot) ~= tonumber(ARGV[3]) or tonumber(ends) < now then
  return 0
end
redis.call('zadd', KEYS[1], string.format('%.0f', now + ARGV[2]), ARGV[1])
local function lengthen(key, ms)
  ms = tonumber(ms)
  if redis.call('pttl', key) < ms then
    redis.call('pexpire', key, string.format('%.0f', ms))
  end
end
lengthen(KEYS[1], ARGV[2])
lengthen(KEYS[5], ARGV[2])
lengthen(KEYS[4], ARGV[2] + 86400000)
return 1
