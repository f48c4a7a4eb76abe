package hold

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// Close tells every holder, leaves the keys to their TTL, and no goroutine.
func TestCloseWithLeasesHeldLosesThem(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		other, _ := locktest.Another(t, servers)
		a, b := locktest.Lock(t, c.Mutex("a")), locktest.Lock(t, c.Mutex("b", quorumlock.WithoutRenewal()))
		inner := locktest.LockIn(t, a.Context(), c.Mutex("a"))
		if err := c.Close(); err != nil {
			t.Error("Close:", err)
		}
		if left := locktest.BusyGoroutines(); len(left) > 0 {
			t.Errorf("Close returned, and %d goroutines are left", len(left))
		}
		for _, l := range []*quorumlock.Lease{a, b, inner} {
			locktest.Lost(t, l, 0)
			if err := l.Extend(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
				t.Errorf("Extend after Close: %v, want ErrLost", err)
			}
			if err := l.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
				t.Errorf("Unlock after Close: %v, want ErrLost", err)
			}
		}
		locktest.Refused(t, other.Mutex("a")) // the holder may be at work yet
		if _, err := c.Mutex("c").Lock(t.Context()); !errors.Is(err, quorumlock.ErrClosed) {
			t.Errorf("Lock after Close: %v, want ErrClosed", err)
		}
		if err := c.Close(); err != nil {
			t.Error("second Close:", err)
		}
		time.Sleep(quorumlock.DefaultTTL)
		locktest.Nothing(t, servers)
	})
}

// Close ends the waiters, at the nodes and in the local queue, with their entries.
func TestCloseWithWaitersWaitingEndsThem(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		holder, _ := locktest.Another(t, servers)
		held := locktest.Lock(t, holder.Mutex("x"))
		ended := make(chan error)
		for range 8 {
			go func() {
				_, err := c.Mutex("x").Lock(context.Background())
				ended <- err
			}()
		}
		time.Sleep(3 * time.Second)
		start := time.Now()
		if err := c.Close(); err != nil {
			t.Error("Close:", err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("Close took %v", took)
		}
		for range 8 {
			if err := <-ended; !errors.Is(err, quorumlock.ErrClosed) {
				t.Errorf("Lock: %v, want ErrClosed", err)
			}
		}
		locktest.Held(t, held)
		in, err := holder.Mutex("x").Inspect(t.Context())
		if err != nil || in.State.Waiting != 0 {
			t.Errorf("%d wait after Close (%v), want none", in.State.Waiting, err)
		}
		locktest.Unlock(t, held)
		locktest.Nothing(t, servers)
	})
}

// Close waits for pending calls, at most for the node timeout.
func TestCloseDuringAnAttemptWaitsForTheNodeTimeoutAtMost(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		locktest.Warm(t, c)
		locktest.Each(servers, (*embedded.Server).Stall)
		ended := make(chan error, 1)
		go func() {
			_, err := c.Mutex("x").TryLock(context.Background())
			ended <- err
		}()
		time.Sleep(100 * time.Millisecond)
		start := time.Now()
		if err := c.Close(); err != nil {
			t.Error("Close:", err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("Close took %v, want the node timeout for the attempt and for its undoing at most", took)
		}
		if err := <-ended; !errors.Is(err, quorumlock.ErrClosed) {
			t.Errorf("TryLock: %v, want ErrClosed", err)
		}
		locktest.Each(servers, (*embedded.Server).Resume)
		time.Sleep(quorumlock.DefaultTTL)
		locktest.Nothing(t, servers)
	})
}
