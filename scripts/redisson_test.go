package scripts_test

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// The scripts of a Redisson client's RLock: it counts relatively, and knows nothing of our tokens.
const (
	redissonAcquire = `if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil
end
return redis.call('pttl', KEYS[1])`
	redissonRelease = `if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then redis.call('pexpire', KEYS[1], ARGV[2]); return 0 end
redis.call('del', KEYS[1]); redis.call('publish', KEYS[2], ARGV[1]); return 1`
)

// thread is a Redisson client's thread: `<client uuid>:<thread id>`.
const thread = "5cbe9c86-0c1e-4f0e-8dd4-5a8ad4b4b3e7:42"

func (s *server) redisson(source string, keys []string, args ...any) any {
	s.Helper()
	r := s.send(wire.NewCall(&wire.Script{Source: source}, keys, args...))
	if r.Err != nil && !errors.Is(r.Err, redis.Nil) {
		s.Fatal(r.Err)
	}
	return r.Value
}

// redissonLocks makes thread acquire, or enter again, and reports whether it was granted.
func (s *server) redissonLocks(name string) bool {
	s.Helper()
	return s.redisson(redissonAcquire, []string{name}, ttl.Milliseconds(), thread) == nil
}

// redissonUnlocks makes thread leave. It returns 1 for a release, 0 for entries left, nil for not
// held.
func (s *server) redissonUnlocks(name string) any {
	s.Helper()
	keys := []string{name, "redisson_lock__channel:{" + name + "}"}
	return s.redisson(redissonRelease, keys, 0, ttl.Milliseconds(), thread)
}

// One owner that goes by both protocols finds one count: it is the same field of the same hash.
func TestHoldCountsAreCommon(t *testing.T) {
	s := start(t)
	s.grant("x", thread, 1, 100)
	s.redissonLocks("x")
	s.checkHold("x", thread, "2")
	if a := s.grant("x", thread, 3, 0); !a.Again || a.Token != 100 {
		t.Errorf("answer %+v", a)
	}
	if s.redissonUnlocks("x") != int64(0) {
		t.Error("Redisson's release does not find entries left")
	}
	s.checkRelease(wire.Release("x", thread, 2), 1, true)
	if s.redissonUnlocks("x") != int64(1) {
		t.Error("Redisson's release of the last entry is no release")
	}
	s.checkHold("x", thread, "")
}
