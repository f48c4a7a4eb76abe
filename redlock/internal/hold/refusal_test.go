package hold

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestARefusalSaysWhoHoldsTheLock(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 2, 3)
		lease := locktest.Lock(t, clients[0].Mutex("x"))
		_, err := clients[1].Mutex("x").TryLock(t.Context())
		held, ok := errors.AsType[*quorumlock.HeldError](err)
		if !ok || !errors.Is(err, quorumlock.ErrHeld) || held.Name != "x" || held.Holder != lease.Owner() || held.TTL <= 9*time.Second || held.TTL > quorumlock.DefaultTTL || held.Position != 0 {
			t.Errorf("TryLock: %#v, want one that names %s", err, lease.Owner())
		}
		_, err = clients[1].Mutex("x", quorumlock.WithWait(5*time.Second)).Lock(t.Context())
		if held, ok = errors.AsType[*quorumlock.HeldError](err); !ok || held.Holder != lease.Owner() || held.Position != 1 {
			t.Errorf("Lock: %#v, want the holder and the first position", err)
		}
		locktest.Unlock(t, lease)
		locktest.Nothing(t, servers)
	})
}

// A waiter that was refused by a quorum yields its grant elsewhere. Its ctx ends before the node
// has confirmed the yield.
func TestARefusalSaysWhoHoldsTheLockEvenIfTheCallerGoesDuringAYield(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 2, 3)
		lease := locktest.Lock(t, clients[0].Mutex("x"))
		servers[2].Redis.Del("x") // this node grants it to the waiter, as one of three
		ctx, cancel := context.WithCancel(t.Context())
		returned := make(chan struct{})
		servers[2].Before(func(r embedded.Run) {
			if r.Script == "release" {
				cancel()
				<-returned
			}
		})
		_, err := clients[1].Mutex("x").Lock(ctx)
		servers[2].Before(nil)
		close(returned)
		held, ok := errors.AsType[*quorumlock.HeldError](err)
		if !ok || held.Holder != lease.Owner() || !errors.Is(err, context.Canceled) {
			t.Errorf("Lock: %v, want that it was cancelled, and who holds the lock", err)
		}
		synctest.Wait()
		_ = lease.Unlock(t.Context())
		locktest.Nothing(t, servers)
	})
}

// A Lock that waits for a lease of its own process usually lacks that lease's context.
func TestALockThatWaitsForItsOwnProcessSaysSo(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3, quorumlock.WithWait(time.Second))
		other, _ := locktest.Another(t, servers, quorumlock.WithWait(time.Second))
		locktest.MustLock(t, c.Mutex("x"))
		for range 3 { // the others wait in the local queue, and ask no node
			go c.Mutex("x").Lock(t.Context()) //nolint:errcheck // it waits in vain
		}
		synctest.Wait()
		for name, tt := range map[string]struct {
			lock quorumlock.Locker
			own  bool
		}{"the client that holds": {c.Mutex("x"), true}, "another client": {other.Mutex("x"), false}} {
			for way, call := range map[string]func(context.Context) (*quorumlock.Lease, error){"TryLock": tt.lock.TryLock, "Lock": tt.lock.Lock} {
				_, err := call(t.Context())
				held, ok := errors.AsType[*quorumlock.HeldError](err)
				says := err != nil && strings.Contains(err.Error(), "held by this process") && strings.Contains(err.Error(), "pass the lease's context")
				if !ok || held.Own != tt.own || says != tt.own || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s of %s: %v, want one line that says whether it is held by this process", way, name, err)
				}
			}
		}
	})
}

// An exhausted time budget is 0 or negative. It means "no wait", not "for ever".
func TestNoTimeToWaitIsNoWaiting(t *testing.T) {
	for name, tt := range map[string]struct {
		before       func(t *testing.T, c *redlock.Client, servers []*embedded.Server)
		want         func(error) bool // nil: a lease
		waitingHelps bool
	}{
		"free": {func(*testing.T, *redlock.Client, []*embedded.Server) {}, nil, false},
		"held": {func(t *testing.T, c *redlock.Client, _ []*embedded.Server) { locktest.Lock(t, c.Mutex("x")) },
			func(err error) bool { return errors.Is(err, quorumlock.ErrHeld) }, true},
		"no quorum": {func(_ *testing.T, _ *redlock.Client, servers []*embedded.Server) { locktest.Kill(servers[:2]...) },
			func(err error) bool { _, few := errors.AsType[*quorumlock.QuorumError](err); return few }, true},
		"no lock": {func(t *testing.T, _ *redlock.Client, servers []*embedded.Server) {
			locktest.Each(servers, func(s *embedded.Server) { _ = s.Redis.Set("x", "a string") })
		}, func(err error) bool { return errors.Is(err, quorumlock.ErrNotALock) }, false},
	} {
		for _, limit := range []time.Duration{0, -time.Second} {
			locktest.Run(t, name+", "+limit.String(), func(t *testing.T) {
				c, servers := locktest.Client(t, 3)
				tt.before(t, c, servers)
				other, _ := locktest.Another(t, servers)
				m := other.Mutex("x", quorumlock.WithWait(limit))
				began := time.Now()
				lease, err := m.Lock(t.Context())
				if took := time.Since(began); took > 3*500*time.Millisecond {
					t.Errorf("Lock took %v", took)
				}
				if tt.want == nil {
					if err != nil {
						t.Fatal(err)
					}
					locktest.Unlock(t, lease)
					return
				}
				if !tt.want(err) || errors.Is(err, context.DeadlineExceeded) != tt.waitingHelps {
					t.Errorf("Lock: %v, with DeadlineExceeded: %v", err, tt.waitingHelps)
				}
				if _, err := m.TryLock(t.Context()); err == nil || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("TryLock: %v, want an error other than DeadlineExceeded", err)
				}
			})
		}
	}
}

func TestNoTimeToWaitForALatch(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3, quorumlock.WithWait(0))
		l := c.Latch("x", 2)
		began := time.Now()
		if err := l.Done(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		if err := l.Wait(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait for a latch that is not open: %v, want DeadlineExceeded", err)
		}
		locktest.Done(t, l, "b")
		if err := l.Wait(t.Context()); err != nil {
			t.Errorf("Wait for a latch that is open: %v", err)
		}
		locktest.Kill(servers...)
		if err := c.Latch("y", 2).Done(t.Context(), "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Done without a quorum: %v, want DeadlineExceeded", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("they took %v", took)
		}
	})
}
