-- Raises the fencing token to that of the quorum, for a holder that got a lower one here.
--
-- KEYS[1]  the lock: see holds.lua
-- KEYS[2]  the fencing token: integer
-- ARGV[1]  owner
-- ARGV[2]  TTL of the lock, ms
-- ARGV[3]  the token that the owner got at this node
-- ARGV[4]  the token to raise to
-- ARGV[5]  'share' if the owner shares the lock; otherwise absent
--
-- Reply    1 raised, 0 not: the owner does not hold, or the counter has changed since
--
-- The check of the token stops a late raise that runs while another owner holds the lock: the next
-- grant could get the token of that owner. Sharers have one token, and may all raise to it: no
-- other token is counted while they have the lock.
local held = redis.call('hget', KEYS[1], ARGV[1])
local now = redis.call('time')
local shares = ARGV[5] or held and #held > 12 -- see holds.lua
if not held or shares and tonumber(held) < now[1] * 1000 + math.floor(now[2] / 1000) then
  return 0
end
local last = tonumber(redis.call('get', KEYS[2]) or 0)
if ARGV[5] then
  if last >= tonumber(ARGV[4]) then
    return 1
  end
elseif last ~= tonumber(ARGV[3]) then
  return 0
end
-- Kept for as long as acquire.lua would keep it, and never for less than before.
local left, ahead = redis.call('pttl', KEYS[2]), math.max(0, ARGV[4] / 1000 - now[1] * 1000)
if left == -1 then
  redis.call('set', KEYS[2], ARGV[4])
else
  redis.call('set', KEYS[2], ARGV[4], 'px', string.format('%.0f', math.max(left, ARGV[2] + 93600000 + ahead)))
end
return 1
