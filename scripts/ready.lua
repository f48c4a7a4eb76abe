-- Tries each command that a Mutex needs, on keys of a lock that nobody uses. Nobody ever sees a change: most commands change nothing
-- where there is no key, and the one field that is written is deleted in the same run. The commands that change nothing come first,
-- DEL among them: nothing is written that cannot be deleted.
--
-- KEYS[1], KEYS[2], KEYS[3]  the lock and its queue: see queue.lua
-- KEYS[4]  the fencing token
--
-- Reply    1; the error of the first command that the server refuses: the user has no permission, the server is a replica, its
--          memory is full, its disk failed
if redis.call('exists', KEYS[1], KEYS[2], KEYS[3], KEYS[4]) == 0 then
  redis.call('time')
  redis.call('set', KEYS[4], '', 'xx')
  redis.call('get', KEYS[4])
  redis.call('zadd', KEYS[2], 'xx', 0, '')
  redis.call('zrem', KEYS[2], '')
  redis.call('zrange', KEYS[2], 0, 0)
  redis.call('zrank', KEYS[2], '')
  redis.call('zscore', KEYS[2], '')
  redis.call('hdel', KEYS[3], '')
  redis.call('hget', KEYS[3], '')
  redis.call('hmget', KEYS[3], '')
  redis.call('hkeys', KEYS[1])
  redis.call('hexists', KEYS[1], '')
  redis.call('hgetall', KEYS[1])
  redis.call('hlen', KEYS[1])
  redis.call('pttl', KEYS[1])
  redis.call('pexpire', KEYS[1], 1)
  redis.call('del', KEYS[1])
  redis.call('hset', KEYS[1], '', '')
  redis.call('del', KEYS[1])
end
return 1
