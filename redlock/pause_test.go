package redlock_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// "A caller never gets a lease whose validity is already over." The drift of a TTL of 1 s is 12 ms.
func TestPauseWhileAcquiringCountsAgainstTheValidity(t *testing.T) {
	for _, tt := range []struct {
		pause   time.Duration
		granted bool
	}{
		{0, true},
		{500 * time.Millisecond, true},
		{987 * time.Millisecond, true},
		{988 * time.Millisecond, false},
		{time.Second, false},
		{3 * time.Second, false},
	} {
		t.Run(tt.pause.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// With 1 ms left, a renewal is due at once, and would set another end.
				c, servers := locktest.Client(t, 5, quorumlock.WithTTL(time.Second), quorumlock.WithNodeTimeout(time.Second), quorumlock.WithoutRenewal())
				warm(t, c)
				pause := func(r embedded.Run) {
					if r.Script == "acquire" {
						time.Sleep(tt.pause)
					}
				}
				locktest.Each(servers, func(s *embedded.Server) { s.After(pause) })
				start := time.Now()
				lease, err := c.Mutex("x").TryLock(t.Context())
				if granted := err == nil; granted != tt.granted {
					t.Fatalf("granted %v (%v), want %v", granted, err, tt.granted)
				}
				if err == nil {
					if want := start.Add(988 * time.Millisecond); !lease.ValidUntil().Equal(want) {
						t.Errorf("valid until %v, want %v: what the nodes took must count", lease.ValidUntil(), want)
					}
					locktest.Unlock(t, lease)
				}
				locktest.Nothing(t, servers)
			})
		})
	}
}

// The pause may come between the grants and the raise of the token, too.
func TestPauseWhileRaisingTheTokenCountsAgainstTheValidity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5, quorumlock.WithTTL(time.Second), quorumlock.WithNodeTimeout(time.Second))
		setCounters(t, servers, "x", ahead(3), ahead(4), ahead(5), ahead(1), ahead(2))
		locktest.Each(servers[3:], func(s *embedded.Server) { s.Delay(time.Millisecond) }) // otherwise three may agree without a raise
		locktest.Each(servers, func(s *embedded.Server) {
			s.After(func(r embedded.Run) {
				if r.Script == "raise" {
					time.Sleep(990 * time.Millisecond)
				}
			})
		})
		if lease, err := c.Mutex("x").TryLock(t.Context()); err == nil {
			t.Errorf("granted a lease that ended %v ago", time.Since(lease.ValidUntil()))
		}
		locktest.Nothing(t, servers)
	})
}

// A holder that is paused for longer than its lease outlives it: what it writes then is refused by the
// resource, and it takes nothing from the next holder.
func TestPauseWhileHoldingIsStoppedByTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		paused, paths := locktest.Another(t, servers)
		store := locktest.Resource{T: t}

		old := locktest.Lock(t, paused.Mutex("x"))
		store.Enter(old)
		locktest.Each(paths, (*embedded.Server).Stall) // nothing it does reaches anybody
		deadline := old.ValidUntil()
		locktest.Lost(t, old, time.Minute)
		if now := time.Now(); !now.Equal(deadline) {
			t.Errorf("told %v after the deadline", now.Sub(deadline))
		}
		lease := locktest.Lock(t, c.Mutex("x"))
		store.Enter(lease)
		if !store.Write(lease.Token()) {
			t.Error("the holder's write was refused")
		}
		locktest.Each(paths, (*embedded.Server).Resume)
		if store.Write(old.Token()) {
			t.Error("the late write was taken")
		}
		if err := old.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("Unlock after the pause: %v, want ErrLost", err)
		}
		locktest.HoldsAll(t, servers, lease)
		locktest.Unlock(t, lease)
		locktest.Nothing(t, servers)
	})
}

// One node's clock is stepped forward: it alone forgets, and the holder takes it back.
func TestNodeClockSteppedForwardCostsOneVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		other, _ := locktest.Another(t, servers)
		lease := locktest.Lock(t, c.Mutex("x"))
		for i := range 10 {
			s := servers[i%5]
			s.StepClock(time.Hour)
			if s.Redis.Exists("x") {
				t.Fatal("the step did not expire the key")
			}
			locktest.Refused(t, other.Mutex("x"))
			time.Sleep(7 * time.Second) // a renewal that misses the key, and the one that grants anew
			locktest.HoldsAll(t, servers, lease)
		}
		locktest.Unlock(t, lease)
		locktest.NoLocks(t, servers)
	})
}

// A node's clock is stepped back, and it keeps a dead holder's key for an hour: the others suffice.
func TestNodeClockSteppedBackKeepsNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		dead, paths := locktest.Another(t, servers)
		old := locktest.Lock(t, dead.Mutex("x"))
		locktest.HoldsAll(t, servers, old)
		locktest.Each(paths, (*embedded.Server).Kill)
		servers[0].StepClock(-time.Hour)
		servers[3].StepClock(-time.Hour)

		start := time.Now()
		lease := locktest.Lock(t, c.Mutex("x"))
		if took := time.Since(start); took > quorumlock.DefaultTTL+time.Second {
			t.Errorf("it took %v until the dead holder's lock was free", took)
		}
		time.Sleep(2 * quorumlock.DefaultTTL)
		locktest.Held(t, lease)
		locktest.Unlock(t, lease)
		for i, s := range servers {
			if left := len(locktest.Keys(s)) > 0; left != (i == 0 || i == 3) {
				t.Errorf("%s has %q", s.Name, locktest.Keys(s))
			}
		}
	})
}

// A hold whose nodes' clocks were all stepped back is released as ever.
func TestUnlockDoesNotDependOnNodeClocks(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, -time.Second, time.Second} {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 5)
				lease := locktest.Lock(t, c.Mutex("x"))
				locktest.Each(servers, func(s *embedded.Server) { s.StepClock(step) })
				locktest.Unlock(t, lease)
				locktest.Nothing(t, servers)
			})
		})
	}
}
