package sick

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// blip is how long a node is out of reach in these tests.
const blip = 100 * time.Millisecond

// blips are the ways in which a node is out of reach for a moment. Each begins now, or with the
// next script, and ends by itself.
var blips = []struct {
	name  string
	begin func(s *embedded.Server)
}{
	{"refuses connections", func(s *embedded.Server) {
		s.Kill()
		time.AfterFunc(blip, func() { s.Restart(true) })
	}},
	{"resets connections", func(s *embedded.Server) {
		once(s.Before, func() {
			s.Kill()
			time.AfterFunc(time.Millisecond, func() { s.Restart(true) })
		})
		time.AfterFunc(blip, func() { s.Before(nil) })
	}},
	{"loses requests", func(s *embedded.Server) {
		s.Lose()
		time.AfterFunc(blip, s.Resume)
	}},
}

// once has f called with the next script only, by one of the hooks of a server.
func once(hook func(func(embedded.Run)), f func()) {
	var done sync.Once
	hook(func(embedded.Run) { done.Do(f) })
}

// dies makes a server run one more script without a reply, then refuse connections for a moment.
func dies(s *embedded.Server) {
	once(s.After, func() {
		s.Kill()
		time.AfterFunc(blip, func() { s.Restart(true) })
	})
}

// areFree checks that locks are free to any caller, a second after the last blip, and that no node
// has any key of them.
func areFree(t *testing.T, servers []*embedded.Server, names ...string) {
	t.Helper()
	time.Sleep(time.Second)
	synctest.Wait()
	for _, s := range servers {
		if left := locktest.Keys(s); len(left) > 0 {
			t.Errorf("%s has %q, a second after it was back", s.Name, left)
		}
	}
	c, _ := locktest.Another(t, servers) // its connections were never cut
	for _, name := range names {
		if lease, err := c.Mutex(name).TryLock(t.Context()); err != nil {
			t.Errorf("TryLock when nobody holds the lock: %v", err)
		} else {
			locktest.Unlock(t, lease)
		}
		begin := time.Now()
		locktest.Unlock(t, locktest.Lock(t, c.Mutex(name)))
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("Lock took %v when nobody held the lock", took)
		}
	}
}

// Where a lock was handed over while a node was out of reach, the former holder still has it at
// that node. The node has a vote for the next one as soon as it has released.
func TestANodeThatMissedAHandoffHasAVoteWhenItIsBack(t *testing.T) {
	for _, tt := range blips {
		locktest.Run(t, tt.name, func(t *testing.T) {
			c, servers := locktest.Client(t, 3)
			other, _ := locktest.Another(t, servers)
			locktest.Warm(t, other)
			holder := locktest.Lock(t, c.Mutex("x"))
			got := locktest.Waiter(t, other.Mutex("x"))
			tt.begin(servers[0])
			locktest.MustUnlock(t, holder)
			lease := <-got
			time.Sleep(blip + time.Second + quorumlock.DefaultTTL/3) // with the next renewal
			if n := locktest.Holds(servers, "x", lease.Owner()); n != 3 {
				t.Errorf("%d of 3 nodes have the lock as its holder's, a renewal after all are back", n)
			}
			servers[1].Kill()
			time.Sleep(2 * quorumlock.DefaultTTL)
			locktest.Held(t, lease)
			servers[1].Restart(true)
			time.Sleep(time.Second)
			_ = lease.Unlock(t.Context()) // the lease may be lost
			time.Sleep(quorumlock.DefaultTTL)
			locktest.Nothing(t, servers)
		})
	}
}

// Close drops pending releases, as it ends everything.
func TestCloseEndsTheReleasesThatAreYetToBeSentAgain(t *testing.T) {
	for _, tt := range blips {
		locktest.Run(t, tt.name, func(t *testing.T) {
			servers, _ := locktest.Nodes(t, 3)
			c, _ := locktest.Roomy(t, servers)
			locktest.Warm(t, c)
			var leases []*quorumlock.Lease
			for i := range 50 {
				leases = append(leases, locktest.MustLock(t, c.Mutex(fmt.Sprint(i))))
			}
			synctest.Wait()
			tt.begin(servers[0])
			for _, l := range leases {
				locktest.MustUnlock(t, l)
			}
			begin := time.Now()
			if err := c.Close(); err != nil {
				t.Error("Close:", err)
			}
			if took := time.Since(begin); took > time.Second {
				t.Errorf("Close took %v", took)
			}
			synctest.Wait() // for goroutines that are about to end
			if left := locktest.AllGoroutines(); len(left) > 0 {
				t.Errorf("Close returned, and goroutines are left:\n%s", strings.Join(left, "\n\n"))
			}
			time.Sleep(blip)
			before := servers[0].Ran()
			time.Sleep(quorumlock.DefaultTTL)
			if n := servers[0].Ran() - before; n > 0 {
				t.Errorf("%d scripts were sent after Close", n)
			}
			locktest.NoLocks(t, servers)
		})
	}
}

// A refused release does not stay pending, because the node would refuse it again.
func TestAReleaseThatANodeRefusesIsNotSentAgain(t *testing.T) {
	for name, refuse := range map[string]func(s *embedded.Server){
		"no permission": func(s *embedded.Server) { s.Deny("hget") },
		"a wrong type": func(s *embedded.Server) {
			s.Redis.Del("x")
			_ = s.Redis.Set("x", "an application's")
		},
	} {
		locktest.Run(t, name, func(t *testing.T) {
			c, servers := locktest.Client(t, 3)
			lease := locktest.Lock(t, c.Mutex("x"))
			refuse(servers[0])
			locktest.Unlock(t, lease)
			before := servers[0].Ran("release")
			for range 20 { // it answers, so that a pending release would be sent
				locktest.Unlock(t, locktest.Lock(t, c.Mutex("y")))
				time.Sleep(time.Second)
			}
			if n := servers[0].Ran("release") - before - 20; n > 0 {
				t.Errorf("what the node refused was sent %d times more", n)
			}
		})
	}
}

// The client is closed while its Shutdown waits for a node with a pending release: both return, and
// all ends.
func TestCloseDuringAShutdownEndsIt(t *testing.T) {
	for _, tt := range blips {
		locktest.Run(t, tt.name, func(t *testing.T) {
			servers, _ := locktest.Nodes(t, 3)
			c, paths := locktest.Roomy(t, servers)
			locktest.Warm(t, c)
			for i := range 20 {
				lease := locktest.MustLock(t, c.Mutex(fmt.Sprint(i)))
				synctest.Wait()
				tt.begin(paths[0])
				locktest.MustUnlock(t, lease)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := c.Shutdown(t.Context()); err != nil {
					t.Error("Shutdown:", err)
				}
			})
			time.Sleep(70 * time.Millisecond)
			wg.Go(func() {
				if err := c.Close(); err != nil {
					t.Error("Close:", err)
				}
			})
			wg.Wait()
			if left := locktest.AllGoroutines(); len(left) > 0 {
				t.Errorf("goroutines are left:\n%s", strings.Join(left, "\n\n"))
			}
			time.Sleep(blip + quorumlock.DefaultTTL)
			locktest.NoLocks(t, servers)
		})
	}
}

// The requests that three nodes missed, one after the other, are sent again when each answers: the
// release of an Unlock, which returned nil since the other four had released; the release of a
// grant with a lost reply; the leave of a cancelled waiter.
func TestWhatANodeMissedIsSentAgainWhenItAnswers(t *testing.T) {
	for i, tt := range blips {
		for what, miss := range map[string]func(t *testing.T, c *redlock.Client, s *embedded.Server){
			"release": func(t *testing.T, c *redlock.Client, s *embedded.Server) {
				lease := locktest.Lock(t, c.Mutex("x"))
				tt.begin(s)
				locktest.Unlock(t, lease)
			},
			"grant": func(t *testing.T, c *redlock.Client, s *embedded.Server) {
				dies(s)
				locktest.Unlock(t, locktest.TryLock(t, c.Mutex("x")))
				time.Sleep(time.Second)
			},
			"leave": func(t *testing.T, c *redlock.Client, s *embedded.Server) {
				holder := locktest.Lock(t, c.Mutex("x"))
				ctx, cancel := context.WithCancel(t.Context())
				waiting := locktest.Call(t, ctx, c.Mutex("x").Lock)
				tt.begin(s)
				cancel()
				<-waiting
				time.Sleep(blip + time.Second)
				if left := locktest.Keys(s); len(left) != 1 {
					t.Errorf("%s has %q, a second after it was back: want the lock alone", s.Name, left)
				}
				locktest.Held(t, holder)
				locktest.Unlock(t, holder)
			},
		} {
			if what == "grant" && i > 0 {
				continue // it has a blip of its own
			}
			locktest.Run(t, what+", "+tt.name, func(t *testing.T) {
				c, servers := locktest.Client(t, 5)
				locktest.Warm(t, c)
				for _, s := range servers[:3] {
					miss(t, c, s)
					time.Sleep(blip)
				}
				areFree(t, servers, "x")
			})
		}
	}
}

// The same for the grants of an attempt that fails since three nodes die at the same time.
func TestAGrantOfAFailedAttemptIsGivenBackWhenTheNodeAnswers(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		locktest.Warm(t, c)
		locktest.Each(servers[:3], dies)
		lease, err := c.Mutex("x").TryLock(t.Context())
		if _, ok := errors.AsType[*quorumlock.QuorumError](err); !ok {
			t.Fatalf("TryLock: %v %v, want a QuorumError", lease, err)
		}
		time.Sleep(blip)
		areFree(t, servers, "x")
	})
}

// Many blips, never two at once, while several clients use several locks in all ways. No lock is
// ever blocked for longer than a moment, and nothing is left a second after the last blip. The
// simulation has no such plans.
func TestRollingBlipsBlockNoLockAndLeaveNothing(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		names := []string{"x", "y", "z"}
		servers, _ := locktest.Nodes(t, 5)
		arrive := func(s *embedded.Server) { locktest.Arrive(s, 500*time.Microsecond) }
		locktest.Each(servers, arrive)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var grants atomic.Int64
		for i := range 8 {
			c, _ := locktest.Roomy(t, servers)
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			wg.Go(func() {
				for ctx.Err() == nil {
					m, how := c.Mutex(names[rng.IntN(len(names))]), rng.IntN(4)
					own, cancel := context.WithCancel(t.Context())
					acquire, begin := m.Lock, time.Now()
					switch how {
					case 0:
						acquire = m.TryLock
					case 1:
						time.AfterFunc(locktest.UpTo(rng, 100*time.Millisecond), cancel)
					}
					lease, err := acquire(own)
					if took := time.Since(begin); how > 1 && (err != nil || took > 3*time.Second) {
						t.Errorf("Lock: %v after %v; nobody holds for longer than 50 ms", err, took)
					}
					if err == nil {
						grants.Add(1)
						time.Sleep(locktest.UpTo(rng, 50*time.Millisecond))
						locktest.MustUnlock(t, lease) // one node is out of reach at most
					}
					cancel()
					time.Sleep(locktest.UpTo(rng, 300*time.Millisecond))
				}
			})
		}
		rng := rand.New(rand.NewPCG(1, 1000))
		for range locktest.Thorough(300, 50) {
			s := servers[rng.IntN(len(servers))]
			switch kind := rng.IntN(len(blips) + 2); kind {
			case len(blips):
				dies(s)
			case len(blips) + 1:
				s.LoseReplies(1 + rng.IntN(3))
			default:
				blips[kind].begin(s)
			}
			time.Sleep(blip + locktest.UpTo(rng, blip/2))
			s.LoseReplies(0)
			s.After(nil)
			arrive(s)        // it has no hook for resets any more
			time.Sleep(blip) // a server that died with its last script is back
		}
		stop()
		wg.Wait()
		if n := grants.Load(); n < 50 {
			t.Errorf("only %d grants: this test shows little", n)
		}
		areFree(t, servers, names...)
		locktest.Nothing(t, servers)
	})
}
