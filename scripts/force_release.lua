-- Releases the lock, whoever holds it.
--
-- KEYS[1]  the lock: hash, owner -> hold count
-- ARGV[1]  the channel that tells of a release
--
-- Reply    1 released, 0 nobody held it
if redis.call('del', KEYS[1]) == 0 then
  return 0
end
redis.call('publish', ARGV[1], '0')
return 1
