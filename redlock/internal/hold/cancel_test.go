package hold

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// situation is the state that a cancelled call finds.
type situation struct {
	name    string
	prepare func(t *testing.T, servers []*embedded.Server)
	cleanup func(servers []*embedded.Server)
	held    bool // by somebody else: the call waits
}

var situations = []situation{
	{name: "free"},
	{name: "counters apart", prepare: func(t *testing.T, servers []*embedded.Server) {
		locktest.SetCounters(t, servers, "x", locktest.Ahead(10), locktest.Ahead(20), locktest.Ahead(30), locktest.Ahead(40), locktest.Ahead(50))
	}},
	{name: "minority dead",
		prepare: func(_ *testing.T, servers []*embedded.Server) { locktest.Each(servers[:2], (*embedded.Server).Kill) },
		cleanup: func(servers []*embedded.Server) {
			locktest.Each(servers[:2], func(s *embedded.Server) { s.Restart(true) })
		}},
	{name: "majority dead",
		prepare: func(_ *testing.T, servers []*embedded.Server) { locktest.Each(servers[:3], (*embedded.Server).Kill) },
		cleanup: func(servers []*embedded.Server) {
			locktest.Each(servers[:3], func(s *embedded.Server) { s.Restart(true) })
		}},
	{name: "held", held: true},
}

// A call whose context is cancelled, before or after any script at any node, leaves nothing behind.
func TestContextCancelledAtEveryPointLeavesNothing(t *testing.T) {
	for _, in := range situations {
		locktest.Run(t, in.name, func(t *testing.T) {
			c, servers := locktest.Client(t, 5)
			other, _ := locktest.Another(t, servers)
			locktest.Warm(t, c)
			for point := 1; ; point++ {
				var count atomic.Int64
				reached := cancelOnce(t, c, other, servers, in, func(cancel func()) {
					at := func(embedded.Run) {
						if count.Add(1) == int64(point) {
							cancel()
						}
					}
					locktest.Each(servers, func(s *embedded.Server) { s.Before(at); s.After(at) })
				})
				if !reached || t.Failed() {
					if point < 6 {
						t.Errorf("only %d points were reached", point-1)
					}
					t.Logf("%d points", point-1)
					return
				}
				if point == locktest.Thorough(25, 10) { // it goes round in the same circle
					return
				}
			}
		})
	}
}

// cancelOnce calls Lock in a situation, with a context that arm arranges to be cancelled, and
// checks the remains. It reports whether the context was cancelled before Lock returned on its own.
func cancelOnce(t *testing.T, c, other *redlock.Client, servers []*embedded.Server, in situation, arm func(cancel func())) bool {
	t.Helper()
	var holder *quorumlock.Lease
	if in.held {
		holder = locktest.Lock(t, other.Mutex("x"))
	}
	if in.prepare != nil {
		in.prepare(t, servers)
	}
	const limit = 700 * time.Millisecond // a waiter has refreshed its place by then
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	giveUp := time.AfterFunc(limit, cancel) // in those situations where Lock waits
	defer giveUp.Stop()
	began := time.Now()
	arm(cancel)
	lease, err := c.Mutex("x").Lock(ctx)
	cancelled := ctx.Err() != nil && time.Since(began) < limit
	locktest.Each(servers, func(s *embedded.Server) { s.Before(nil); s.After(nil) })
	switch {
	case err == nil:
		// The context may be cancelled as Lock returns: the caller has the lease, and unlocks.
		if err := lease.Unlock(ctx); err != nil {
			t.Errorf("Unlock: %v", err)
		}
	case !errors.Is(err, context.Canceled):
		t.Errorf("Lock: %v, want context.Canceled", err)
	}
	if holder != nil {
		time.Sleep(time.Second)
		locktest.Held(t, holder)
		if n := locktest.Holds(servers, "x", holder.Owner()); n < 3 {
			t.Errorf("%d nodes have the lock as its holder's", n)
		}
		locktest.NoGoroutines(t)
		locktest.Unlock(t, holder)
	}
	if in.cleanup != nil {
		time.Sleep(time.Second)
		in.cleanup(servers)
	}
	locktest.Nothing(t, servers)
	return cancelled
}

// Extend gives up with its own context, and the lease does not.
func TestExtendCancelledKeepsTheLease(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		lease := locktest.Lock(t, c.Mutex("x"))
		locktest.Each(servers, (*embedded.Server).Stall)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := lease.Extend(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Extend: %v, want context.DeadlineExceeded", err)
		}
		locktest.Each(servers, (*embedded.Server).Resume)
		time.Sleep(2 * quorumlock.DefaultTTL)
		locktest.Held(t, lease)
		locktest.Unlock(t, lease)
		locktest.Nothing(t, servers)
	})
}
