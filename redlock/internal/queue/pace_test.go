package queue

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// asks counts the round trips to nodes.
type asks struct{ atomic.Int32 }

func (a *asks) Begin(ctx context.Context, _ string) context.Context { return ctx }

func (a *asks) Observe(_ context.Context, e quorumlock.Event) {
	if e.Kind == quorumlock.NodeAsked {
		a.Add(1)
	}
}

// While round trips take many times longer than before, a caller with little time left asks no node
// for a lock that another caller has just waited for in vain. Callers with more time, and callers
// of free locks and quick nodes, ask as always.
func TestCallersWithLittleTimeDoNotAskBusyNodes(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		var asked asks
		c, servers := locktest.Client(t, 3, quorumlock.WithObserver(&asked))
		other, _ := locktest.Another(t, servers)
		delay := func(d time.Duration) { locktest.Each(servers, func(s *embedded.Server) { s.Delay(d) }) }
		// try calls Lock, and reports whether that asked a node.
		try := func(name string, wait time.Duration) (bool, *quorumlock.Lease, error) {
			before := asked.Load()
			ctx, stop := context.WithTimeout(t.Context(), wait)
			defer stop()
			lease, err := c.Mutex(name).Lock(ctx)
			did := asked.Load() != before
			time.Sleep(100 * time.Millisecond) // its calls come back
			return did, lease, err
		}
		check := func(what, name string, wait time.Duration, want bool) {
			t.Helper()
			began := time.Now()
			did, lease, err := try(name, wait)
			if did != want {
				t.Errorf("%s: asked is %v, want %v", what, did, want)
			}
			if lease != nil {
				t.Fatalf("%s: granted", what)
			}
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, quorumlock.ErrHeld) {
				t.Errorf("%s: %v, want the end of the time, and that the lock is held", what, err)
			}
			if took := time.Since(began) - 100*time.Millisecond; took < wait {
				t.Errorf("%s: returned after %v of %v", what, took, wait)
			}
		}
		delay(time.Millisecond)
		held := locktest.MustLock(t, other.Mutex("x"))
		elsewhere := locktest.MustLock(t, other.Mutex("y"))
		check("quick nodes", "x", 50*time.Millisecond, true)
		check("quick nodes, after one gave up", "x", 50*time.Millisecond, true)
		delay(15 * time.Millisecond)
		check("a caller with much time", "x", 400*time.Millisecond, true)
		check("little time, just after one gave up", "x", 100*time.Millisecond, false)
		check("little time for another lock", "y", 100*time.Millisecond, true)
		check("little time, 250 ms after one gave up", "x", 100*time.Millisecond, true)
		check("just after that one", "x", 100*time.Millisecond, false)
		check("much time", "x", 400*time.Millisecond, true)
		locktest.MustUnlock(t, held)
		locktest.MustUnlock(t, elsewhere)
		time.Sleep(time.Second)
		for range 2 {
			did, lease, err := try("x", 100*time.Millisecond)
			if err != nil || !did {
				t.Fatalf("a free lock: asked %v, %v", did, err)
			}
			locktest.MustUnlock(t, lease)
		}
	})
}

// A caller that does not ask reports the lack of a quorum that the caller before it has met.
func TestCallersThatDoNotAskReportTheLackOfAQuorum(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		m := c.Mutex("x")
		for _, d := range []time.Duration{time.Millisecond, 15 * time.Millisecond} {
			locktest.Each(servers, func(s *embedded.Server) { s.Delay(d) })
			for range 10 {
				locktest.Unlock(t, locktest.Lock(t, m))
			}
		}
		for _, s := range servers[1:] {
			s.Kill()
		}
		for _, wait := range []time.Duration{400 * time.Millisecond, 100 * time.Millisecond, 100 * time.Millisecond} {
			ctx, stop := context.WithTimeout(t.Context(), wait)
			if _, err := m.Lock(ctx); !errors.Is(err, quorumlock.ErrNoQuorum) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v: %v", wait, err)
			}
			stop()
		}
	})
}
