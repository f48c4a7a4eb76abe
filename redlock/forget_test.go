package redlock_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// A node that restarts without its data is asked to grant anew, and counts from the renewal after that:
// in the meantime somebody else may have held the lock there.
func TestRestartWithNoDataCountsAgainFromTheRenewalAfterItsNewGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		lease := locktest.Lock(t, c.Mutex("x"))
		locktest.HoldsAll(t, servers, lease)
		deadline := lease.ValidUntil()
		servers[3].Kill()
		servers[4].Kill() // so that the one that forgets is needed

		var mu sync.Mutex
		var ran []string
		servers[2].After(func(r embedded.Run) {
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, r.Script)
			if !lease.ValidUntil().Equal(deadline) {
				t.Errorf("the deadline has moved before %q: a node that forgot was counted", ran)
			}
			if r.Script == "renew" && slices.Contains(ran, "acquire") {
				servers[2].After(nil) // this one counts
			}
		})
		servers[2].Restart(false)
		time.Sleep(quorumlock.DefaultTTL * 2 / 3)
		servers[2].After(nil)
		mu.Lock()
		if want := []string{"renew", "acquire", "renew"}; !slices.Equal(ran, want) {
			t.Errorf("the node that restarted was sent %q, want %q", ran, want)
		}
		mu.Unlock()
		if !lease.ValidUntil().After(deadline) {
			t.Error("the lease was not renewed once the node counted again")
		}
		time.Sleep(2 * quorumlock.DefaultTTL)
		locktest.Held(t, lease)
		servers[3].Restart(true)
		servers[4].Restart(true)
		locktest.Unlock(t, lease)
		locktest.NoLocks(t, servers)
	})
}

// Two nodes of five may forget with a quorum of four, even when one of the five never had the key.
func TestQuorumOfFourOfFiveToleratesTwoForgettingNodes(t *testing.T) {
	for _, regrant := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, servers := locktest.Client(t, 5, quorumlock.WithQuorum(4))
			other, _ := locktest.Another(t, servers, quorumlock.WithQuorum(4))
			servers[4].Kill()
			lease := locktest.Lock(t, c.Mutex("x"))
			servers[4].Restart(true)
			servers[0].Restart(false)
			servers[1].Restart(false)
			if regrant { // the holder may have it back everywhere
				time.Sleep(quorumlock.DefaultTTL)
				locktest.HoldsAll(t, servers, lease)
			}
			for range 10 {
				locktest.Refused(t, other.Mutex("x"))
			}
			time.Sleep(2 * quorumlock.DefaultTTL)
			locktest.Held(t, lease)
			locktest.Unlock(t, lease)
			next := locktest.Lock(t, other.Mutex("x"))
			if next.Token() <= lease.Token() {
				t.Errorf("token %d after %d", next.Token(), lease.Token())
			}
			locktest.Unlock(t, next)
			locktest.Nothing(t, servers)
		})
	}
}

// A key that is gone at one node comes back, however it went.
func TestOneNodesKeyGoneIsTakenBack(t *testing.T) {
	for name, lose := range map[string]func(s *embedded.Server){
		"deleted":                  func(s *embedded.Server) { s.Redis.Del("x") },
		"evicted with its counter": func(s *embedded.Server) { s.Redis.Del("x"); s.Redis.Del(wire.TokenKey("x")) },
		"counter evicted":          func(s *embedded.Server) { s.Redis.Del(wire.TokenKey("x")) },
		"flushed":                  func(s *embedded.Server) { s.Redis.FlushAll() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 5)
				other, _ := locktest.Another(t, servers)
				lease := locktest.Lock(t, c.Mutex("x"))
				for _, s := range servers {
					lose(s)
					locktest.Refused(t, other.Mutex("x"))
					time.Sleep(quorumlock.DefaultTTL * 2 / 5) // the next renewal
					locktest.HoldsAll(t, servers, lease)
				}
				locktest.Held(t, lease)
				locktest.Unlock(t, lease)
				next := locktest.Lock(t, other.Mutex("x"))
				if next.Token() <= lease.Token() {
					t.Errorf("token %d after %d, when every counter was evicted once", next.Token(), lease.Token())
				}
				locktest.Unlock(t, next)
			})
		})
	}
}

// When a quorum of the keys is gone somebody else may hold the lock: the holder is told when it next
// renews, and does not take it back.
func TestQuorumOfKeysGoneLosesTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		lease := locktest.Lock(t, c.Mutex("x"))
		for _, s := range servers[:3] {
			s.Redis.Del("x")
		}
		locktest.Lost(t, lease, quorumlock.DefaultTTL/3+quorumlock.DefaultTTL/1000)
		if err := lease.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("Unlock: %v, want ErrLost", err)
		}
		for _, s := range servers[:3] {
			if s.Ran("acquire") != 1 {
				t.Errorf("%s was asked again for a lock that is lost", s.Name)
			}
		}
		locktest.Nothing(t, servers)
	})
}

// The holder hears of it at Unlock if it has not renewed meanwhile.
func TestUnlockTellsThatTheKeysWereTakenAway(t *testing.T) {
	for gone, want := range []error{nil, nil, nil, quorumlock.ErrLost, quorumlock.ErrLost, quorumlock.ErrLost} {
		synctest.Test(t, func(t *testing.T) {
			c, servers := locktest.Client(t, 5)
			lease := locktest.Lock(t, c.Mutex("x"))
			locktest.HoldsAll(t, servers, lease)
			for _, s := range servers[:gone] {
				s.Redis.Del("x")
			}
			err := lease.Unlock(t.Context())
			if gone <= 2 && err != nil {
				t.Errorf("Unlock with %d keys gone: %v, want no error", gone, err)
			}
			if gone == 5 && !errors.Is(err, want) {
				t.Errorf("Unlock with all keys gone: %v, want ErrLost", err)
			}
			locktest.Nothing(t, servers)
		})
	}
}

// A flushed script cache costs a second round trip and nothing else.
func TestScriptCacheFlushedChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		flush := func() { locktest.Each(servers, (*embedded.Server).FlushScripts) }
		lease := locktest.Lock(t, c.Mutex("x"))
		flush()
		if err := lease.Extend(t.Context()); err != nil {
			t.Error("Extend:", err)
		}
		flush()
		time.Sleep(quorumlock.DefaultTTL) // the watchdog
		flush()
		locktest.Held(t, lease)
		locktest.Unlock(t, lease)
		flush()
		locktest.Unlock(t, locktest.TryLock(t, c.Mutex("x")))
		locktest.Nothing(t, servers)
		for _, s := range servers {
			if n := s.Ran("acquire"); n != 2 {
				t.Errorf("%d acquires ran at %s, want 2", n, s.Name)
			}
		}
	})
}
