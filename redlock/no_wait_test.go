package redlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

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
		"no quorum": {func(_ *testing.T, _ *redlock.Client, servers []*embedded.Server) { kill(servers[:2]...) },
			func(err error) bool { _, few := errors.AsType[*quorumlock.QuorumError](err); return few }, true},
		"no lock": {func(t *testing.T, _ *redlock.Client, servers []*embedded.Server) {
			locktest.Each(servers, func(s *embedded.Server) { _ = s.Redis.Set("x", "a string") })
		}, func(err error) bool { return errors.Is(err, quorumlock.ErrNotALock) }, false},
	} {
		for _, limit := range []time.Duration{0, -time.Second} {
			t.Run(name+", "+limit.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
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
			})
		}
	}
}

func TestNoTimeToWaitForALatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3, quorumlock.WithWait(0))
		l := c.Latch("x", 2)
		began := time.Now()
		if err := l.Done(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		if err := l.Wait(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait for a latch that is not open: %v, want DeadlineExceeded", err)
		}
		done(t, l, "b")
		if err := l.Wait(t.Context()); err != nil {
			t.Errorf("Wait for a latch that is open: %v", err)
		}
		kill(servers...)
		if err := c.Latch("y", 2).Done(t.Context(), "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Done without a quorum: %v, want DeadlineExceeded", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("they took %v", took)
		}
	})
}
