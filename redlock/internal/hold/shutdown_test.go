package hold

import (
	"context"
	"errors"
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
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := c.Mutex("y").Lock(t.Context()); !errors.Is(err, quorumlock.ErrClosed) {
				t.Errorf("a Lock that waits: %v, want ErrClosed", err)
			}
		})
		time.Sleep(time.Second)
		over := make(chan error)
		go func() { over <- c.Shutdown(t.Context()) }()
		wg.Wait()
		for name, call := range map[string]func(context.Context) (*quorumlock.Lease, error){"Lock": c.Mutex("z").Lock, "TryLock": c.Mutex("z").TryLock} {
			if _, err := call(t.Context()); !errors.Is(err, quorumlock.ErrClosed) {
				t.Errorf("%s during a shutdown: %v, want ErrClosed", name, err)
			}
		}
		time.Sleep(time.Minute)
		locktest.Held(t, lease) // it is renewed meanwhile
		select {
		case err := <-over:
			t.Fatalf("Shutdown did not wait for the lease: %v", err)
		default:
		}
		servers[2].Kill()
		locktest.MustUnlock(t, lease)
		time.Sleep(2 * time.Second)
		servers[2].Restart(true) // now the release that had failed arrives
		if err := <-over; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
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
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := tt.call(c.Mutex("x"), t.Context()); !errors.Is(err, quorumlock.ErrClosed) {
					t.Errorf("%v, want ErrClosed", err)
				}
			})
			time.Sleep(30 * time.Millisecond) // the scripts have run, and nothing is answered
			over := make(chan error, 1)
			go func() { over <- c.Shutdown(t.Context()) }()
			// The answers are there, and the release is on its way.
			time.Sleep(20 * time.Millisecond)
			paths[2].Kill()
			time.Sleep(time.Second + 500*time.Millisecond)
			select {
			case err := <-over:
				t.Fatalf("Shutdown returned %v while node 3 had yet to be told", err)
			default:
			}
			paths[2].Restart(true)
			if err := <-over; err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			want := 0
			if tt.held {
				want = 1 // the other's hold
			}
			for _, s := range servers {
				if left := locktest.Keys(s); len(left) != want {
					t.Errorf("when Shutdown returned, %s had %q", s.Name, left)
				}
			}
			wg.Wait()
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
		over := make(chan error, 1)
		go func() { over <- c.Shutdown(t.Context()) }()
		time.Sleep(5 * time.Second)
		select {
		case err := <-over:
			t.Fatalf("Shutdown returned %v while node 3 had yet to be told", err)
		default:
		}
		servers[2].Resume()
		if err := <-over; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
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
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			if err := c.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Shutdown: %v, want DeadlineExceeded", err)
			}
			if took := time.Since(began); took < time.Minute || took > time.Minute+time.Second {
				t.Errorf("it took %v", took)
			}
			if why == "a lease is held" && !errors.Is(context.Cause(lease.Context()), quorumlock.ErrLost) {
				t.Error("the lease outlived the client")
			}
			locktest.Each(servers[:1], func(s *embedded.Server) { s.Restart(true) })
			var none context.Context
			if err := c.Shutdown(none); !errors.Is(err, quorumlock.ErrNilContext) {
				t.Errorf("Shutdown(nil): %v", err)
			}
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
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := c.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		locktest.Each(servers, (*embedded.Server).Resume)
	})
}
