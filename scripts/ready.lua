-- Tries each command of a Mutex, on keys of a lock that no caller uses. No client sees a change:
-- most commands change nothing without a key, and the one field that is written is deleted in the
-- same run. Commands without an effect come first, DEL included, so the field is written only if
-- DEL may run.
--
-- KEYS[1], KEYS[2], KEYS[3]  the lock and its queue: see queue.lua
-- KEYS[4]  the fencing token
--
-- Reply    1; or the error of the first command that the server refuses, followed by the command:
--          the user lacks a permission, the server is a replica, its memory is full, or its disk
--          failed
if redis.call('exists', KEYS[1], KEYS[2], KEYS[3], KEYS[4]) == 0 then
  for _, command in ipairs({
    {'time'},
    {'set', KEYS[4], '', 'xx'},
    {'get', KEYS[4]},
    {'zadd', KEYS[2], 'xx', 0, ''},
    {'zrem', KEYS[2], ''},
    {'zrange', KEYS[2], 0, 0},
    {'zrank', KEYS[2], ''},
    {'zscore', KEYS[2], ''},
    {'zcount', KEYS[2], 0, 0},
    {'hdel', KEYS[3], ''},
    {'hget', KEYS[3], ''},
    {'hmget', KEYS[3], ''},
    {'hkeys', KEYS[1]},
    {'hexists', KEYS[1], ''},
    {'hgetall', KEYS[1]},
    {'hlen', KEYS[1]},
    {'pttl', KEYS[1]},
    {'pexpire', KEYS[1], 1},
    {'del', KEYS[1]},
    {'hset', KEYS[1], '', ''},
    {'del', KEYS[1]},
  }) do
    local reply = redis.pcall(unpack(command))
    if type(reply) == 'table' and reply.err then
      return redis.error_reply(reply.err .. ' (' .. string.upper(command[1]) .. ')')
    end
  end
end
return 1
