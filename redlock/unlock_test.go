package redlock_test

import (
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// Nodes whose grant is still on its way when Unlock begins give it back when it comes, and are as good
// as those that have released: one dead node more does not cost the quorum.
func TestUnlockCountsTheNodesThatAreYetToAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		warm(t, c)
		locktest.Each(servers[3:], func(s *embedded.Server) { s.Delay(10 * time.Millisecond) })
		lease := locktest.Lock(t, c.Mutex("x"))
		servers[0].Kill()
		if err := lease.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock with four of five nodes healthy: %v", err)
		}
		for i, s := range servers[1:] {
			if left := locktest.Keys(s); len(left) > 0 && i < 2 {
				t.Errorf("Unlock returned, and %s has %q", s.Name, left)
			}
		}
		locktest.NoLocks(t, servers[1:])
	})
}

// However long the nodes are to keep the lock, they do.
func TestUnlockAfterTheLongestTimeKeepsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := locktest.Client(t, 3)
		time.Sleep(time.Millisecond) // the clock does not stand at its beginning
		lease := locktest.Lock(t, c.Mutex("x"))
		if err := lease.UnlockAfter(t.Context(), math.MaxInt64); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Mutex("x").TryLock(t.Context()); !errors.Is(err, quorumlock.ErrHeld) {
			t.Errorf("TryLock: %v, want ErrHeld", err)
		}
	})
}

// A node that never answers bounds Unlock by its timeout, no more.
func TestUnlockWaitsForTheNodeTimeoutAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		warm(t, c)
		servers[4].Stall() // it has not even answered the attempt
		lease := locktest.Lock(t, c.Mutex("x"))
		locktest.Each(servers[:2], (*embedded.Server).Stall)
		start := time.Now()
		err := lease.Unlock(t.Context())
		if q, ok := errors.AsType[*quorumlock.QuorumError](err); !ok || len(q.Nodes) < 2 {
			t.Errorf("Unlock with two nodes of five healthy: %v, want a QuorumError that names them", err)
		}
		if took := time.Since(start); took > 500*time.Millisecond {
			t.Errorf("Unlock took %v, want 500 ms, the node timeout, at most", took)
		}
		locktest.Each(servers, (*embedded.Server).Resume)
		time.Sleep(10 * time.Second)
		locktest.Nothing(t, servers)
	})
}
