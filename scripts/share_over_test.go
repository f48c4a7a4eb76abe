package scripts_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/scripts"
)

// Shares that nobody has released pile up while others share the lock and nobody waits. However many, they must not make
// the lock unusable.
func TestManySharesThatAreOver(t *testing.T) {
	s := start(t)
	now := time.UnixMilli(1_800_000_000_000)
	s.data.SetTime(now)
	for i := range 9000 {
		s.send(scripts.Acquire("x", quorumlock.Owner(fmt.Sprint("dead:", i)), time.Second, 1, 100).Shared())
	}
	s.send(scripts.Acquire("x", alice, ttl, 1, 100).Shared())
	s.data.SetTime(now.Add(2 * time.Second))
	if a, err := s.send(scripts.Acquire("x", bob, ttl, 1, 100)).Acquired(); err != nil || a.Granted || a.Holder != alice {
		t.Errorf("%+v, %.200v, want that alice has it", a, err)
	}
	if n, _ := s.data.HKeys("x"); len(n) != 2 {
		t.Errorf("%d fields are left", len(n))
	}
}

// The key of a lock ends with the last share: Redisson's clients wait for the key's own TTL.
func TestTheKeyOfASharedLockEndsWithItsLastShare(t *testing.T) {
	s := start(t)
	now := time.UnixMilli(1_800_000_000_000)
	s.data.SetTime(now)
	s.send(scripts.Acquire("x", alice, time.Hour, 1, 100).Shared())
	s.send(scripts.Acquire("x", bob, ttl, 1, 100).Shared())
	s.release("x", alice, 1)
	if left := s.data.TTL("x"); left > ttl {
		t.Errorf("the key ends in %v, and the only share in %v", left, ttl)
	}
	s.data.SetTime(now.Add(2 * ttl)) // bob is dead
	if a, err := s.send(scripts.Acquire("x", "carol:1", ttl, 1, 100).Shared()).Acquired(); err != nil || !a.Granted {
		t.Fatalf("%+v, %v", a, err)
	}
	s.release("x", "carol:1", 1)
	if s.data.Exists("x") {
		fields, _ := s.data.HKeys("x")
		t.Errorf("nobody shares the lock, and %q is left of it for %v", fields, s.data.TTL("x"))
	}
}

func TestInspectOfALockWhoseSharesAreOver(t *testing.T) {
	s := start(t)
	now := time.UnixMilli(1_800_000_000_000)
	s.data.SetTime(now)
	s.send(scripts.Acquire("x", alice, time.Hour, 1, 100).Shared())
	s.send(scripts.Acquire("x", bob, ttl, 1, 100).Shared())
	s.release("x", alice, 1)
	s.data.SetTime(now.Add(2 * ttl))
	if state, err := s.send(scripts.Inspect("x", 10)).Inspected(); err != nil || state.Held() || state.TTL != 0 {
		t.Errorf("%+v, %v, want a free lock without a TTL", state, err)
	}
}

// Where many share the lock, one who leaves does not look at all others, but the dead are dropped in the end, and the key ends with
// the last share.
func TestManyWhoShareTheLockLeave(t *testing.T) {
	s := start(t)
	now := time.UnixMilli(1_800_000_000_000).Add(999 * time.Microsecond) // by which nobody of so many looks
	s.data.SetTime(now)
	owner := func(i int) quorumlock.Owner { return quorumlock.Owner(fmt.Sprint("w:", i)) }
	const many = 900
	for i := range many {
		s.send(scripts.Acquire("x", owner(i), ttl+time.Duration(i)*time.Millisecond, 1, 100).Shared())
	}
	for i := many - 1; i > 20; i-- { // the one that ends last is the first to leave
		s.release("x", owner(i), 1)
	}
	if left := s.data.TTL("x"); left != ttl+(many-1)*time.Millisecond {
		t.Errorf("the key ends in %v: somebody has looked at all others", left)
	}
	for i := 20; i > 3; i-- {
		s.release("x", owner(i), 1)
	}
	if left := s.data.TTL("x"); left > ttl+3*time.Millisecond {
		t.Errorf("the key ends in %v, and the last share in %v", left, ttl+3*time.Millisecond)
	}

	for i := range many { // who die
		s.send(scripts.Acquire("x", owner(1000+i), ttl, 1, 100).Shared())
	}
	left := func() int { fields, _ := s.data.HKeys("x"); return len(fields) }
	comes := 0
	for ; left() > many && comes < 10*many; comes++ {
		now = now.Add(ttl/100 + 7*time.Microsecond)
		s.data.SetTime(now)
		s.send(scripts.Acquire("x", owner(5000+comes), 2*ttl, 1, 100).Shared())
		s.release("x", owner(5000+comes), 1)
	}
	if n := left(); n > 4 {
		t.Errorf("%d fields are left after %d have come and gone", n, comes)
	}
}
