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
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestShutdownWaitsForLeasesAndTakesNoNewOnes(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		clients, servers := testkit.Fleet(t, 2, 3)
		c := clients[0]
		lease := testkit.Lock(t, c.Mutex("x"))
		other := testkit.Lock(t, clients[1].Mutex("y"))
		waits := testkit.Go(func() error { return testkit.Err(c.Mutex("y").Lock(t.Context())) })
		time.Sleep(time.Second)
		over := testkit.Go(func() error { return c.Shutdown(t.Context()) })
		testkit.Is(t, <-waits, quorumlock.ErrClosed, "a Lock that waits")
		for name, call := range map[string]func(context.Context) (*quorumlock.Lease, error){"Lock": c.Mutex("z").Lock, "TryLock": c.Mutex("z").TryLock} {
			testkit.Is(t, testkit.Err(call(t.Context())), quorumlock.ErrClosed, "%s during a shutdown", name)
		}
		time.Sleep(time.Minute)
		testkit.Held(t, lease) // it is renewed meanwhile
		testkit.Pending(t, over, "Shutdown did not wait for the lease")
		servers[2].Kill()
		testkit.MustUnlock(t, lease)
		time.Sleep(2 * time.Second)
		servers[2].Restart(true) // now the release that had failed arrives
		testkit.OK(t, <-over, "Shutdown")
		testkit.Unlock(t, other)
		testkit.Nothing(t, servers)
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
		testkit.Run(t, tt.name, func(t *testing.T) {
			servers, _ := testkit.Nodes(t, 3)
			c, paths := testkit.Another(t, servers, quorumlock.WithTTL(time.Hour))
			other, _ := testkit.Another(t, servers)
			testkit.Warm(t, c)
			var holder *quorumlock.Lease
			if tt.held {
				holder = testkit.Lock(t, other.Mutex("x"))
			}
			testkit.Each(paths, func(s *embedded.Server) { s.Delay(20 * time.Millisecond) })
			attempt := testkit.Go(func() error { return testkit.Err(tt.call(c.Mutex("x"), t.Context())) })
			time.Sleep(30 * time.Millisecond) // the scripts have run, and nothing is answered
			over := testkit.Go(func() error { return c.Shutdown(t.Context()) })
			// The answers are there, and the release is on its way.
			time.Sleep(20 * time.Millisecond)
			paths[2].Kill()
			time.Sleep(time.Second + 500*time.Millisecond)
			testkit.Pending(t, over, "Shutdown while node 3 had yet to be told")
			paths[2].Restart(true)
			testkit.OK(t, <-over, "Shutdown")
			for _, s := range servers {
				if left := testkit.Keys(s); (len(left) == 1) != tt.held || len(left) > 1 { // the other's hold
					t.Errorf("when Shutdown returned, %s had %q", s.Name, left)
				}
			}
			testkit.Is(t, <-attempt, quorumlock.ErrClosed, "%s", tt.name)
			if tt.held {
				testkit.Unlock(t, holder)
			}
			testkit.Nothing(t, servers)
		})
	}
}

// Unlock returns when a quorum has released. A node that has not answered yet may fail: Shutdown
// waits for the outcome.
func TestShutdownWaitsForTheAnswersToTheLastRelease(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3, quorumlock.WithTTL(time.Hour))
		lease := testkit.Lock(t, c.Mutex("x"))
		servers[2].Lose()
		testkit.MustUnlock(t, lease)
		over := testkit.Go(func() error { return c.Shutdown(t.Context()) })
		time.Sleep(5 * time.Second)
		testkit.Pending(t, over, "Shutdown while node 3 had yet to be told")
		servers[2].Resume()
		testkit.OK(t, <-over, "Shutdown")
		for _, s := range servers {
			if left := testkit.Keys(s); len(left) > 0 {
				t.Errorf("when Shutdown returned, %s had %q", s.Name, left)
			}
		}
	})
}

func TestShutdownEndsWithItsContext(t *testing.T) {
	for _, why := range []string{"a lease is held", "a node cannot be told"} {
		testkit.Run(t, why, func(t *testing.T) {
			c, servers := testkit.Client(t, 3, quorumlock.WithTTL(time.Hour))
			lease := testkit.Lock(t, c.Mutex("x"))
			if why != "a lease is held" {
				servers[0].Kill()
				testkit.MustUnlock(t, lease)
			}
			ctx := testkit.Within(t, time.Minute)
			began := time.Now()
			testkit.Is(t, c.Shutdown(ctx), context.DeadlineExceeded, "Shutdown")
			testkit.Took(t, began, time.Minute, time.Minute+time.Second, "Shutdown")
			if why == "a lease is held" && !errors.Is(context.Cause(lease.Context()), quorumlock.ErrLost) {
				t.Error("the lease outlived the client")
			}
			testkit.Restart(servers[:1]...)
			var none context.Context
			testkit.Is(t, c.Shutdown(none), quorumlock.ErrNilContext, "Shutdown(nil)")
		})
	}
}

// The error of a Shutdown whose ctx is done names the oldest leases, and how long they are held.
func TestShutdownNamesTheLeasesThatAreStillHeld(t *testing.T) {
	for leases, want := range map[int]string{
		1: `context deadline exceeded; quorumlock: 1 lock is still held: "0" for 8s`,
		5: `context deadline exceeded; quorumlock: 5 locks are still held: "0" for 8s, "1" for 7s, "2" for 6s and 2 more`,
	} {
		testkit.Run(t, fmt.Sprint(leases), func(t *testing.T) {
			c, _ := testkit.Client(t, 3)
			for i := range leases {
				testkit.Lock(t, c.Mutex(fmt.Sprint(i)))
				time.Sleep(time.Second)
			}
			time.Sleep(time.Duration(5-leases) * time.Second)
			err := c.Shutdown(testkit.Within(t, 3*time.Second))
			testkit.Is(t, err, context.DeadlineExceeded, "Shutdown")
			testkit.Equal(t, fmt.Sprint(err), want, "Shutdown")
			time.Sleep(quorumlock.DefaultTTL)
		})
	}
}

// Two nodes are frozen when leases end. Retries at one run whenever those at the other do not.
func TestShutdownWaitsForFrozenNodesNoLongerThanTheTTL(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 5)
		testkit.Warm(t, c)
		for i, s := range servers[3:] {
			lease := testkit.Lock(t, c.Mutex("x"))
			synctest.Wait()
			s.Stall()
			testkit.Unlock(t, lease)
			time.Sleep(time.Duration(1+2*i) * 750 * time.Millisecond)
		}
		ctx := testkit.Within(t, time.Hour)
		err := c.Shutdown(ctx)
		testkit.Is(t, err, quorumlock.ErrUnconfirmed, "Shutdown")
		for _, s := range servers[3:] {
			if want := "1 at node " + s.Name; !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("Shutdown: %v, want %s", err, want)
			}
		}
		testkit.Each(servers, (*embedded.Server).Resume)
	})
}

// Close tells every holder, leaves the keys to their TTL, and no goroutine.
func TestCloseWithLeasesHeldLosesThem(t *testing.T) {
	testkit.Clean(t, 5, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		other, _ := testkit.Another(t, servers)
		a, b := testkit.Lock(t, c.Mutex("a")), testkit.Lock(t, c.Mutex("b", quorumlock.WithoutRenewal()))
		inner := testkit.LockIn(t, a.Context(), c.Mutex("a"))
		testkit.OK(t, c.Close(), "Close")
		if left := testkit.BusyGoroutines(); len(left) > 0 {
			t.Errorf("Close returned, and %d goroutines are left", len(left))
		}
		for _, l := range []*quorumlock.Lease{a, b, inner} {
			testkit.Lost(t, l, 0)
			testkit.Is(t, l.Extend(t.Context()), quorumlock.ErrLost, "Extend after Close")
			testkit.Is(t, l.Unlock(t.Context()), quorumlock.ErrLost, "Unlock after Close")
		}
		testkit.Refused(t, other.Mutex("a")) // the holder may be at work yet
		testkit.Is(t, testkit.Err(c.Mutex("c").Lock(t.Context())), quorumlock.ErrClosed, "Lock after Close")
		testkit.OK(t, c.Close(), "second Close")
		time.Sleep(quorumlock.DefaultTTL)
	})
}

// Close ends the waiters, at the nodes and in the local queue, with their entries.
func TestCloseWithWaitersWaitingEndsThem(t *testing.T) {
	testkit.Clean(t, 5, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		holder, _ := testkit.Another(t, servers)
		held := testkit.Lock(t, holder.Mutex("x"))
		ended := make(chan error)
		for range 8 {
			go func() { ended <- testkit.Err(c.Mutex("x").Lock(context.Background())) }()
		}
		time.Sleep(3 * time.Second)
		start := time.Now()
		testkit.OK(t, c.Close(), "Close")
		testkit.Took(t, start, 0, time.Second, "Close")
		for range 8 {
			testkit.Is(t, <-ended, quorumlock.ErrClosed, "Lock")
		}
		testkit.Held(t, held)
		in, err := holder.Inspect(t.Context(), "x")
		if err != nil || in.State.Waiting != 0 {
			t.Errorf("%d wait after Close (%v), want none", in.State.Waiting, err)
		}
		testkit.Unlock(t, held)
	})
}

func TestCloseDuringAnAttemptWaitsForTheNodeTimeoutAtMost(t *testing.T) {
	testkit.Clean(t, 5, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		testkit.Warm(t, c)
		testkit.Each(servers, (*embedded.Server).Stall)
		ended := testkit.Go(func() error { return testkit.Err(c.Mutex("x").TryLock(context.Background())) })
		time.Sleep(100 * time.Millisecond)
		start := time.Now()
		testkit.OK(t, c.Close(), "Close")
		testkit.Took(t, start, 0, time.Second, "Close")
		testkit.Is(t, <-ended, quorumlock.ErrClosed, "TryLock")
		testkit.Each(servers, (*embedded.Server).Resume)
		time.Sleep(quorumlock.DefaultTTL)
	})
}

// An acquisition and a release take no goroutine of their own: the lanes of the nodes have theirs.
func TestAnAcquisitionTakesNoGoroutine(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 5)
		testkit.Warm(t, c)
		check := func(when string) {
			t.Helper()
			synctest.Wait()
			if got := testkit.BusyGoroutines(); len(got) != 0 {
				t.Errorf("%d goroutines %s:\n%s", len(got), when, strings.Join(got, "\n\n"))
			}
		}
		testkit.Each(servers, func(s *embedded.Server) { s.Delay(10 * time.Millisecond) })
		for range 3 {
			got := testkit.Go(func() *quorumlock.Lease { return testkit.MustLock(t, c.Mutex("x")) })
			check("while acquiring")
			lease := <-got
			check("after it")
			done := testkit.Go(func() error { return lease.Unlock(t.Context()) })
			check("while releasing")
			testkit.OK(t, <-done, "Unlock")
			check("after it")
		}
	})
}

// A node is asked to renew five hundred leases at a time. A lease that is unlocked while the node
// is busy with the first of them is not renewed with the rest.
func TestNothingIsRenewedAfterUnlockHoweverManyAreRenewedBeforeIt(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 1)
		leases := make([]*quorumlock.Lease, 600)
		for i := range leases {
			leases[i] = testkit.Lock(t, c.Mutex(fmt.Sprint(i)))
		}
		for range 2 { // the node knows the script, and the connection of renewals stands
			testkit.Must(t, leases[599].Extend(t.Context()), "Extend")
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
					testkit.MustUnlock(t, l)
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
			testkit.Unlock(t, l)
		}
	})
}
