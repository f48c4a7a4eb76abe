-- Takes a waiter out of the line, and passes its turn on.
--
-- KEYS[1]  the lock
-- KEYS[2], KEYS[3]  the line: see line.lua
-- ARGV[1]  waiter; '' if there is only an heir
-- ARGV[2]  an heir who releases what it was handed; '*' for every heir of the waiter, '' for none
-- ARGV[3]  the channel that tells Redisson's waiters of a release
--
-- Reply    1 it stood in line, 0 it did not
-- include line.lua
local stood = drop(ARGV[1])
if ARGV[2] ~= '' then
  takeBack(ARGV[1], ARGV[2], ARGV[3])
end
if redis.call('exists', KEYS[2]) == 1 and redis.call('exists', KEYS[1]) == 0 then
  wake(nil, clock())
end
return stood
