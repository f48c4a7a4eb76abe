package hold

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestShutdownWaitsForLeasesAndTakesNoNewOnes(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 2, 3)
		c := clients[0]
		lease := locktest.Lock(t, c.Mutex("x"))
		other := locktest.Lock(t, clients[1].Mutex("y"))
		waits := locktest.Go(func() error { return locktest.Err(c.Mutex("y").Lock(t.Context())) })
		time.Sleep(time.Second)
		over := locktest.Go(func() error { return c.Shutdown(t.Context()) })
		locktest.Is(t, <-waits, quorumlock.ErrClosed, "a Lock that waits")
		for name, call := range map[string]func(context.Context) (*quorumlock.Lease, error){"Lock": c.Mutex("z").Lock, "TryLock": c.Mutex("z").TryLock} {
			locktest.Is(t, locktest.Err(call(t.Context())), quorumlock.ErrClosed, "%s during a shutdown", name)
		}
		time.Sleep(time.Minute)
		locktest.Held(t, lease) // it is renewed meanwhile
		locktest.Pending(t, over, "Shutdown did not wait for the lease")
		servers[2].Kill()
		locktest.MustUnlock(t, lease)
		time.Sleep(2 * time.Second)
		servers[2].Restart(true) // now the release that had failed arrives
		locktest.OK(t, <-over, "Shutdown")
		locktest.Unlock(t, other)
		locktest.Nothing(t, servers)
	})
}

// A shutdown ends an attempt that the nodes have granted, while their answers are on the way. A
// node fails before its grant is released: Shutdown waits until the node is back.
func TestShutdownWaitsForWhatAnAbandonedAttemptGivesBack(t *testing.T) {
	for _, tt := range []struct {
		name string
		held bool // by somebody else, so that the call leaves a queue
		call func(m *redlock.Mutex, ctx context.Context) (*quorumlock.Lease, error)
	}{
		{"Lock", false, (*redlock.Mutex).Lock},
		{"TryLock", false, (*redlock.Mutex).TryLock},
		{"Lock that is queued", true, (*redlock.Mutex).Lock},
	} {
		locktest.Run(t, tt.name, func(t *testing.T) {
			servers, _ := locktest.Nodes(t, 3)
			c, paths := locktest.Another(t, servers, quorumlock.WithTTL(time.Hour))
			other, _ := locktest.Another(t, servers)
			locktest.Warm(t, c)
			var holder *quorumlock.Lease
			if tt.held {
				holder = locktest.Lock(t, other.Mutex("x"))
			}
			locktest.Each(paths, func(s *embedded.Server) { s.Delay(20 * time.Millisecond) })
			attempt := locktest.Go(func() error { return locktest.Err(tt.call(c.Mutex("x"), t.Context())) })
			time.Sleep(30 * time.Millisecond) // the scripts have run, and nothing is answered
			over := locktest.Go(func() error { return c.Shutdown(t.Context()) })
			// The answers are there, and the release is on its way.
			time.Sleep(20 * time.Millisecond)
			paths[2].Kill()
			time.Sleep(time.Second + 500*time.Millisecond)
			locktest.Pending(t, over, "Shutdown while node 3 had yet to be told")
			paths[2].Restart(true)
			locktest.OK(t, <-over, "Shutdown")
			for _, s := range servers {
				if left := locktest.Keys(s); (len(left) == 1) != tt.held || len(left) > 1 { // the other's hold
					t.Errorf("when Shutdown returned, %s had %q", s.Name, left)
				}
			}
			locktest.Is(t, <-attempt, quorumlock.ErrClosed, "%s", tt.name)
			if tt.held {
				locktest.Unlock(t, holder)
			}
			locktest.Nothing(t, servers)
		})
	}
}

// Unlock returns when a quorum has released. A node that has not answered yet may fail: Shutdown
// waits for the outcome.
func TestShutdownWaitsForTheAnswersToTheLastRelease(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3, quorumlock.WithTTL(time.Hour))
		lease := locktest.Lock(t, c.Mutex("x"))
		servers[2].Lose()
		locktest.MustUnlock(t, lease)
		over := locktest.Go(func() error { return c.Shutdown(t.Context()) })
		time.Sleep(5 * time.Second)
		locktest.Pending(t, over, "Shutdown while node 3 had yet to be told")
		servers[2].Resume()
		locktest.OK(t, <-over, "Shutdown")
		for _, s := range servers {
			if left := locktest.Keys(s); len(left) > 0 {
				t.Errorf("when Shutdown returned, %s had %q", s.Name, left)
			}
		}
	})
}

func TestShutdownEndsWithItsContext(t *testing.T) {
	for _, why := range []string{"a lease is held", "a node cannot be told"} {
		locktest.Run(t, why, func(t *testing.T) {
			c, servers := locktest.Client(t, 3, quorumlock.WithTTL(time.Hour))
			lease := locktest.Lock(t, c.Mutex("x"))
			if why != "a lease is held" {
				servers[0].Kill()
				locktest.MustUnlock(t, lease)
			}
			ctx := locktest.Within(t, time.Minute)
			began := time.Now()
			locktest.Is(t, c.Shutdown(ctx), context.DeadlineExceeded, "Shutdown")
			locktest.Took(t, began, time.Minute, time.Minute+time.Second, "Shutdown")
			if why == "a lease is held" && !errors.Is(context.Cause(lease.Context()), quorumlock.ErrLost) {
				t.Error("the lease outlived the client")
			}
			locktest.Restart(servers[:1]...)
			var none context.Context
			locktest.Is(t, c.Shutdown(none), quorumlock.ErrNilContext, "Shutdown(nil)")
		})
	}
}

// The error of a Shutdown whose ctx is done names the oldest leases, and how long they are held.
func TestShutdownNamesTheLeasesThatAreStillHeld(t *testing.T) {
	for leases, want := range map[int]string{
		1: `context deadline exceeded; quorumlock: 1 lock is still held: "0" for 8s`,
		5: `context deadline exceeded; quorumlock: 5 locks are still held: "0" for 8s, "1" for 7s, "2" for 6s and 2 more`,
	} {
		locktest.Run(t, fmt.Sprint(leases), func(t *testing.T) {
			c, _ := locktest.Client(t, 3)
			for i := range leases {
				locktest.Lock(t, c.Mutex(fmt.Sprint(i)))
				time.Sleep(time.Second)
			}
			time.Sleep(time.Duration(5-leases) * time.Second)
			err := c.Shutdown(locktest.Within(t, 3*time.Second))
			locktest.Is(t, err, context.DeadlineExceeded, "Shutdown")
			locktest.Equal(t, fmt.Sprint(err), want, "Shutdown")
			time.Sleep(quorumlock.DefaultTTL)
		})
	}
}

// Two nodes are frozen when leases end. Retries at one run whenever those at the other do not.
func TestShutdownWaitsForFrozenNodesNoLongerThanTheTTL(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		locktest.Warm(t, c)
		for i, s := range servers[3:] {
			lease := locktest.Lock(t, c.Mutex("x"))
			synctest.Wait()
			s.Stall()
			locktest.Unlock(t, lease)
			time.Sleep(time.Duration(1+2*i) * 750 * time.Millisecond)
		}
		ctx := locktest.Within(t, time.Hour)
		err := c.Shutdown(ctx)
		locktest.Is(t, err, quorumlock.ErrUnconfirmed, "Shutdown")
		for _, s := range servers[3:] {
			if want := "1 at node " + s.Name; !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("Shutdown: %v, want %s", err, want)
			}
		}
		locktest.Each(servers, (*embedded.Server).Resume)
	})
}

// Close tells every holder, leaves the keys to their TTL, and no goroutine.
func TestCloseWithLeasesHeldLosesThem(t *testing.T) {
	locktest.Clean(t, 5, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		other, _ := locktest.Another(t, servers)
		a, b := locktest.Lock(t, c.Mutex("a")), locktest.Lock(t, c.Mutex("b", quorumlock.WithoutRenewal()))
		inner := locktest.LockIn(t, a.Context(), c.Mutex("a"))
		locktest.OK(t, c.Close(), "Close")
		if left := locktest.BusyGoroutines(); len(left) > 0 {
			t.Errorf("Close returned, and %d goroutines are left", len(left))
		}
		for _, l := range []*quorumlock.Lease{a, b, inner} {
			locktest.Lost(t, l, 0)
			locktest.Is(t, l.Extend(t.Context()), quorumlock.ErrLost, "Extend after Close")
			locktest.Is(t, l.Unlock(t.Context()), quorumlock.ErrLost, "Unlock after Close")
		}
		locktest.Refused(t, other.Mutex("a")) // the holder may be at work yet
		locktest.Is(t, locktest.Err(c.Mutex("c").Lock(t.Context())), quorumlock.ErrClosed, "Lock after Close")
		locktest.OK(t, c.Close(), "second Close")
		time.Sleep(quorumlock.DefaultTTL)
	})
}

// Close ends the waiters, at the nodes and in the local queue, with their entries.
func TestCloseWithWaitersWaitingEndsThem(t *testing.T) {
	locktest.Clean(t, 5, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		holder, _ := locktest.Another(t, servers)
		held := locktest.Lock(t, holder.Mutex("x"))
		ended := make(chan error)
		for range 8 {
			go func() { ended <- locktest.Err(c.Mutex("x").Lock(context.Background())) }()
		}
		time.Sleep(3 * time.Second)
		start := time.Now()
		locktest.OK(t, c.Close(), "Close")
		locktest.Took(t, start, 0, time.Second, "Close")
		for range 8 {
			locktest.Is(t, <-ended, quorumlock.ErrClosed, "Lock")
		}
		locktest.Held(t, held)
		in, err := holder.Mutex("x").Inspect(t.Context())
		if err != nil || in.State.Waiting != 0 {
			t.Errorf("%d wait after Close (%v), want none", in.State.Waiting, err)
		}
		locktest.Unlock(t, held)
	})
}

func TestCloseDuringAnAttemptWaitsForTheNodeTimeoutAtMost(t *testing.T) {
	locktest.Clean(t, 5, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		locktest.Warm(t, c)
		locktest.Each(servers, (*embedded.Server).Stall)
		ended := locktest.Go(func() error { return locktest.Err(c.Mutex("x").TryLock(context.Background())) })
		time.Sleep(100 * time.Millisecond)
		start := time.Now()
		locktest.OK(t, c.Close(), "Close")
		locktest.Took(t, start, 0, time.Second, "Close")
		locktest.Is(t, <-ended, quorumlock.ErrClosed, "TryLock")
		locktest.Each(servers, (*embedded.Server).Resume)
		time.Sleep(quorumlock.DefaultTTL)
	})
}

// An acquisition and a release take no goroutine of their own: the lanes of the nodes have theirs.
func TestAnAcquisitionTakesNoGoroutine(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		locktest.Warm(t, c)
		check := func(when string) {
			t.Helper()
			synctest.Wait()
			if got := locktest.BusyGoroutines(); len(got) != 0 {
				t.Errorf("%d goroutines %s:\n%s", len(got), when, strings.Join(got, "\n\n"))
			}
		}
		locktest.Each(servers, func(s *embedded.Server) { s.Delay(10 * time.Millisecond) })
		for range 3 {
			got := locktest.Go(func() *quorumlock.Lease { return locktest.MustLock(t, c.Mutex("x")) })
			check("while acquiring")
			lease := <-got
			check("after it")
			done := locktest.Go(func() error { return lease.Unlock(t.Context()) })
			check("while releasing")
			locktest.OK(t, <-done, "Unlock")
			check("after it")
		}
	})
}

// A node is asked to renew five hundred leases at a time. A lease that is unlocked while the node
// is busy with the first of them is not renewed with the rest.
func TestNothingIsRenewedAfterUnlockHoweverManyAreRenewedBeforeIt(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 1)
		leases := make([]*quorumlock.Lease, 600)
		for i := range leases {
			leases[i] = locktest.Lock(t, c.Mutex(fmt.Sprint(i)))
		}
		for range 2 { // the node knows the script, and the connection of renewals stands
			locktest.Must(t, leases[599].Extend(t.Context()), "Extend")
			synctest.Wait()
		}
		var mu sync.Mutex
		var renewed []string
		met := false
		// Unknown scripts come twice, and run once.
		servers[0].After(func(r embedded.Run) {
			if r.Script == "renew" {
				mu.Lock()
				defer mu.Unlock()
				renewed = append(renewed, r.Keys[0])
			}
		})
		servers[0].Before(func(r embedded.Run) {
			if r.Script != "renew" {
				return
			}
			mu.Lock()
			first := !met
			met = true
			mu.Unlock()
			if first { // until as many as allowed are on their way, and the others wait
				time.Sleep(time.Millisecond)
			}
			for _, l := range leases[:300] { // they are the last in the queue
				if first {
					locktest.MustUnlock(t, l)
				}
			}
		})
		var extends sync.WaitGroup
		// The watchdog does not renew so many at one time.
		for _, some := range [][]*quorumlock.Lease{leases[300:], leases[:300]} {
			for _, l := range some {
				extends.Go(func() { _ = l.Extend(t.Context()) }) // it may be unlocked
			}
			synctest.Wait() // they are queued in this order
		}
		extends.Wait()
		mu.Lock()
		n := len(renewed)
		mu.Unlock() // the watchdog renews while the rest are unlocked
		// Of the unlocked ones, 200 at most were on their way with the first.
		if n < 300 || n > 500 {
			t.Errorf("%d of %d were renewed", n, len(leases))
		}
		for _, l := range leases[300:] {
			locktest.Unlock(t, l)
		}
	})
}
