-- Says whether the server would take the writes of a lock. It changes nothing: it asks for a write that needs memory,
-- of a key that is not there, and only if the key is there.
--
-- KEYS[1]  the queue of a lock that nobody uses
--
-- Reply    1; the error of the write if the server refuses writes: it is a replica, its memory is full, its disk
--          failed
if redis.call('exists', KEYS[1]) == 0 then
  redis.call('set', KEYS[1], '', 'xx')
end
return 1
