package redisson

import "github.com/redis/go-redis/v9"

// kind has the differences between the classes of locks.
type kind struct {
	try, unlock, renew *redis.Script

	channel func(name string) string // empty if it does not subscribe
	message string                   // of a release
	field   string                   // follows the thread in the hash
	mode    string                   // of a read-write lock
}

// The replies. Of a try: nil if it was granted, else a PTTL. Of an unlock: 1 if the lock is free, 0
// if entries are left, nil if the thread has none. ARGV[1] is the lease in ms, ARGV[2] the field of
// the thread. An unlock also has in KEYS[2] the channel, and in KEYS[3] the latch of the request,
// with TTL ARGV[4]; ARGV[3] is the message.
const (
	tryLock = `
if redis.call('exists', KEYS[1]) == 1 and redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
  return redis.call('pttl', KEYS[1])
end
redis.call('hincrby', KEYS[1], ARGV[2], 1)
redis.call('pexpire', KEYS[1], ARGV[1])
return nil`

	seen = `
local before = redis.call('get', KEYS[3])
if before then return tonumber(before) end
local function is(n) redis.call('set', KEYS[3], n, 'px', ARGV[4]) return n end
`

	leave = seen + `
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[1])
  return is(0)
end
redis.call('del', KEYS[1])
`
	unlock     = leave + "redis.call(ARGV[5], KEYS[2], ARGV[3]) return is(1)"
	unlockSpin = leave + "return is(1)"

	renew = `
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return 0 end
redis.call('pexpire', KEYS[1], ARGV[1])
return 1`

	// A fair lock. KEYS[2] has the waiting threads, KEYS[3] their time-outs; ARGV[3] is the longest
	// wait of a thread, ARGV[4] the time of the client.
	stale = `
while true do
  local first = redis.call('lindex', KEYS[%[1]d], 0)
  if not first or tonumber(redis.call('zscore', KEYS[%[2]d], first)) > tonumber(ARGV[%[3]d]) then break end
  redis.call('zrem', KEYS[%[2]d], first)
  redis.call('lpop', KEYS[%[1]d])
end
`
	tryFair = `
if redis.call('exists', KEYS[1]) == 0 and (redis.call('exists', KEYS[2]) == 0 or redis.call('lindex', KEYS[2], 0) == ARGV[2]) then
  redis.call('lpop', KEYS[2])
  redis.call('zrem', KEYS[3], ARGV[2])
  for _, other in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do
    redis.call('zincrby', KEYS[3], -tonumber(ARGV[3]), other)
  end
  redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
elseif redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
elseif ARGV[5] == 'once' then
  return 1
end
local own = redis.call('zscore', KEYS[3], ARGV[2])
if own then return math.max(0, redis.call('pttl', KEYS[1])) end
local last, ttl = redis.call('lindex', KEYS[2], -1), nil
if last and last ~= ARGV[2] then
  ttl = redis.call('zscore', KEYS[3], last) - ARGV[4]
else
  ttl = redis.call('pttl', KEYS[1])
end
if redis.call('zadd', KEYS[3], ttl + ARGV[3] + ARGV[4], ARGV[2]) == 1 then
  redis.call('rpush', KEYS[2], ARGV[2])
end
return ttl`

	unlockFair = `
local function tell()
  local first = redis.call('lindex', KEYS[4], 0)
  if first then redis.call(ARGV[5], KEYS[2] .. ':' .. first, ARGV[3]) end
  return is(1)
end
if redis.call('exists', KEYS[1]) == 0 then return tell() end
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[1])
  return is(0)
end
redis.call('del', KEYS[1])
return tell()`

	// A thread that gives up waiting for a fair lock.
	giveUpFair = `
local behind = false
for _, other in ipairs(redis.call('lrange', KEYS[1], 0, -1)) do
  if behind then redis.call('zincrby', KEYS[2], -tonumber(ARGV[2]), other) end
  behind = behind or other == ARGV[1]
end
redis.call('zrem', KEYS[2], ARGV[1])
redis.call('lrem', KEYS[1], 0, ARGV[1])`

	// A read-write lock: the field mode is read or write. Each entry of a reader has its own key:
	// KEYS[2] followed by its number.
	tryRead = `
local mode = redis.call('hget', KEYS[1], 'mode')
if mode and mode ~= 'read' and not (mode == 'write' and redis.call('hexists', KEYS[1], ARGV[2] .. ':write') == 1) then
  return redis.call('pttl', KEYS[1])
end
if not mode then redis.call('hset', KEYS[1], 'mode', 'read') end
local n = redis.call('hincrby', KEYS[1], ARGV[2], 1)
redis.call('set', KEYS[2] .. ':' .. n, 1, 'px', ARGV[1])
redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), ARGV[1]))
return nil`

	unlockRead = seen + `
local mode = redis.call('hget', KEYS[1], 'mode')
if not mode then
  redis.call(ARGV[5], KEYS[2], ARGV[3])
  return is(1)
end
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
local n = redis.call('hincrby', KEYS[1], ARGV[2], -1)
if n == 0 then redis.call('hdel', KEYS[1], ARGV[2]) end
redis.call('del', KEYS[4] .. ':' .. (n + 1))
if redis.call('hlen', KEYS[1]) > 1 then
  local most = -3
  for _, field in ipairs(redis.call('hkeys', KEYS[1])) do
    for i = tonumber(redis.call('hget', KEYS[1], field)) or 0, 1, -1 do
      most = math.max(most, redis.call('pttl', ARGV[6] .. ':' .. field .. ':rwlock_timeout:' .. i))
    end
  end
  if most > 0 then redis.call('pexpire', KEYS[1], most) end
  if most > 0 or mode == 'write' then return is(0) end
end
redis.call('del', KEYS[1])
redis.call(ARGV[5], KEYS[2], ARGV[3])
return is(1)`

	tryWrite = `
local mode = redis.call('hget', KEYS[1], 'mode')
if not mode then
  redis.call('hset', KEYS[1], 'mode', 'write', ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
elseif mode == 'write' and redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], redis.call('pttl', KEYS[1]) + ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])`

	unlockWrite = seen + `
local mode = redis.call('hget', KEYS[1], 'mode')
if not mode then
  redis.call(ARGV[5], KEYS[2], ARGV[3])
  return is(1)
end
if mode ~= 'write' or redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[2], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[1])
  return is(0)
end
redis.call('hdel', KEYS[1], ARGV[2])
if redis.call('hlen', KEYS[1]) == 1 then
  redis.call('del', KEYS[1])
  redis.call(ARGV[5], KEYS[2], ARGV[3])
else
  redis.call('hset', KEYS[1], 'mode', 'read')
end
return is(1)`

	// A fenced lock counts its entries in KEYS[2].
	tryFenced = `
if redis.call('exists', KEYS[1]) == 1 and redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
  return redis.call('pttl', KEYS[1])
end
redis.call('incr', KEYS[2])
redis.call('hincrby', KEYS[1], ARGV[2], 1)
redis.call('pexpire', KEYS[1], ARGV[1])
return nil`

	// A forceUnlock. ARGV[3] is the mode of a read-write lock; empty for others, which delete any
	// key.
	forceUnlock = `
if ARGV[3] ~= '' and redis.call('hget', KEYS[1], 'mode') ~= ARGV[3] or redis.call('del', KEYS[1]) == 0 then return 0 end
redis.call(ARGV[2], KEYS[2], ARGV[1])
return 1`

	// A semaphore: KEYS[1] has the free permits, KEYS[2] is the channel, KEYS[3] has the permits
	// that expire. The last argument is the command that publishes.
	trySetPermits = `
if redis.call('get', KEYS[1]) then return 0 end
redis.call('set', KEYS[1], ARGV[1])
redis.call(ARGV[2], KEYS[2], ARGV[1])
return 1`

	takeOne = `
if tonumber(redis.call('get', KEYS[1]) or 0) < 1 then return 0 end
redis.call('decr', KEYS[1])
`
	tryAcquirePermit = takeOne + "return 1"

	releasePermit = `
redis.call(ARGV[1], KEYS[2], redis.call('incr', KEYS[1]))
return 1`

	// ARGV[1] is the time of the client, ARGV[2] the end of the permit, ARGV[3] its id.
	overdue = `
local over = redis.call('zrangebyscore', KEYS[3], 0, ARGV[1], 'limit', 0, 1)
if over[1] then
  redis.call('zrem', KEYS[3], over[1])
  redis.call(ARGV[4], KEYS[2], redis.call('incr', KEYS[1]))
end
`
	tryAcquireTimed = takeOne + "redis.call('zadd', KEYS[3], ARGV[2], ARGV[3]) return 1"

	trySetCount = `
if redis.call('exists', KEYS[1]) == 1 then return 0 end
redis.call('set', KEYS[1], ARGV[1])
redis.call(ARGV[2], KEYS[2], 1)
return 1`

	countDownOnce = `
local left = redis.call('decr', KEYS[1])
if left <= 0 then redis.call('del', KEYS[1]) end
if left == 0 then redis.call(ARGV[1], KEYS[2], 0) end`

	// A lock of values of a group. ARGV[1] is the lease, ARGV[2] the client's time, ARGV[3] the
	// thread.
	tryGroup = `
local left = redis.call('pttl', KEYS[1])
for i = 4, #ARGV do
  local who = redis.call('hget', KEYS[1], ARGV[i])
  if who and who ~= ARGV[3] and tonumber(redis.call('hget', KEYS[1], ARGV[i] .. ':' .. who .. ':expire_time') or 0) > tonumber(ARGV[2]) then
    return 0
  end
end
for i = 4, #ARGV do
  redis.call('hset', KEYS[1], ARGV[i], ARGV[3], ARGV[i] .. ':' .. ARGV[3] .. ':expire_time', ARGV[2] + ARGV[1])
  redis.call('hincrby', KEYS[1], ARGV[i] .. ':' .. ARGV[3] .. ':lock_count', 1)
end
if left == -2 or left > 0 and left < tonumber(ARGV[1]) then redis.call('pexpire', KEYS[1], ARGV[1]) end
return 1`

	// ARGV[1] is the time of the client, ARGV[2] the thread, ARGV[3] the message.
	unlockGroup = `
for i = 6, #ARGV do
  local own = ARGV[i] .. ':' .. ARGV[2]
  if tonumber(redis.call('hget', KEYS[1], own .. ':expire_time') or 0) < tonumber(ARGV[1]) then return nil end
  if redis.call('hincrby', KEYS[1], own .. ':lock_count', -1) <= 0 then
    redis.call('hdel', KEYS[1], own .. ':expire_time', own .. ':lock_count', ARGV[i])
  end
end
redis.call(ARGV[5], KEYS[2], ARGV[3])
return is(1)`
)
