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
	public "github.com/quorumlock/quorumlock/locktest"
	"github.com/quorumlock/quorumlock/multilock"
)

// Goroutines that are started with a lease's context all enter, unless the lock refuses that. Its
// own lease is no obstacle after it has ended.
func TestWithoutReentryRefusesTheContextOfItsOwnLease(t *testing.T) {
	once := quorumlock.WithoutReentry()
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		both, err := multilock.New([]quorumlock.Locker{c.Mutex("a"), c.Mutex("b")}, once)
		if err != nil {
			t.Fatal(err)
		}
		for name, lock := range map[string]quorumlock.Locker{
			"a mutex":    c.Mutex("x", once),
			"a writer":   c.RWMutex("w", once),
			"a reader":   c.RWMutex("r", once).RLocker(),
			"a slot":     c.Semaphore("s", 3, once),
			"two locks":  both,
			"a fake one": public.New("f", once),
		} {
			outer := locktest.Lock(t, lock)
			before := locktest.Ran(servers)
			for call, take := range map[string]func(context.Context) (*quorumlock.Lease, error){"Lock": lock.Lock, "TryLock": lock.TryLock} {
				lease, err := take(outer.Context())
				if !errors.Is(err, quorumlock.ErrDeadlock) || !errors.Is(err, quorumlock.ErrMisuse) || errors.Is(err, quorumlock.ErrHeld) {
					t.Errorf("%s: %s with the context of its lease: %v, %v, want ErrDeadlock", name, call, lease, err)
				} else if !strings.Contains(err.Error(), "a context that does not descend from the lease") {
					t.Errorf("%s: %s: %v, want the fix", name, call, err)
				}
			}
			if n := locktest.Ran(servers) - before; n != 0 || outer.HoldCount() != 1 {
				t.Errorf("%s: %d scripts ran, and the hold count is %d, want none and 1", name, n, outer.HoldCount())
			}
			locktest.Unlock(t, outer)
			locktest.Unlock(t, locktest.LockIn(t, context.WithoutCancel(outer.Context()), lock))
		}
		outer := locktest.Lock(t, c.Mutex("x")) // the option is of the call that would enter
		if _, err := c.Mutex("x", once).TryLock(outer.Context()); !errors.Is(err, quorumlock.ErrDeadlock) {
			t.Errorf("a lease without the option is entered: %v", err)
		}
		locktest.Unlock(t, locktest.LockIn(t, outer.Context(), c.Mutex("x")))
		locktest.Unlock(t, outer)
		if _, err := c.Mutex("x", once, quorumlock.WithOwner(quorumlock.NewOwner())).TryLock(t.Context()); !errors.Is(err, quorumlock.ErrMisuse) {
			t.Errorf("with an owner: %v, want ErrMisuse", err)
		}
		locktest.Nothing(t, servers)
	})
}

// When little is left of the TTL, entering again extends first.
func TestEnteringAgainExtendsWhenLittleIsLeft(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5, quorumlock.WithoutRenewal())
		outer := locktest.Lock(t, c.Mutex("x"))
		time.Sleep(4 * time.Second)
		before := locktest.Ran(servers)
		locktest.Unlock(t, locktest.LockIn(t, outer.Context(), c.Mutex("x")))
		if n := locktest.Ran(servers) - before; n != 0 {
			t.Errorf("%d scripts ran with 6 s of 10 left, want none", n)
		}
		time.Sleep(4 * time.Second)
		inner := locktest.LockIn(t, outer.Context(), c.Mutex("x"))
		synctest.Wait()
		if n := locktest.Ran(servers) - before; n != 5 {
			t.Errorf("%d scripts ran with 2 s of 10 left, want one renewal at each node", n)
		}
		if left := time.Until(inner.ValidUntil()); left < 9*time.Second {
			t.Errorf("%v left after entering, want a fresh TTL", left)
		}
		locktest.Unlock(t, inner)
		locktest.Unlock(t, outer)
		locktest.Nothing(t, servers)
	})
}

// When a hold is lost, all callers that entered it are notified, and each Unlock returns ErrLost.
func TestLossIsToldToAllWhoEntered(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		outer := locktest.Lock(t, c.Mutex("x"))
		inner := locktest.LockIn(t, context.WithoutCancel(outer.Context()), c.Mutex("x"))
		locktest.Each(servers, func(s *embedded.Server) { s.Redis.Del("x") })
		locktest.Lost(t, outer, quorumlock.DefaultTTL)
		locktest.Lost(t, inner, 0)
		for _, l := range []*quorumlock.Lease{inner, outer} {
			if err := l.Extend(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
				t.Errorf("Extend: %v, want ErrLost", err)
			}
			if err := l.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
				t.Errorf("Unlock: %v, want ErrLost", err)
			}
		}
		locktest.Nothing(t, servers)
	})
}

func TestDifferentLocksNest(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		a := locktest.Lock(t, c.Mutex("a"))
		b := locktest.LockIn(t, a.Context(), c.Mutex("b"))
		again := locktest.LockIn(t, b.Context(), c.Mutex("a")) // past b, the hold of a
		if again.Owner() != a.Owner() || b.Owner() == a.Owner() {
			t.Error("want the hold of a to be entered, and b to be one of its own")
		}
		locktest.Unlock(t, a)
		if b.Context().Err() == nil {
			t.Error("the lease of b, whose context descends from that of a, must end with it")
		}
		locktest.Refused(t, c.Mutex("a"))
		locktest.Refused(t, c.Mutex("b"))
		locktest.Unlock(t, again)
		locktest.Unlock(t, b)
		locktest.Nothing(t, servers)
	})
}

// A context of another client's lease, or of none, is a fresh owner's.
func TestFreshContextIsAFreshOwner(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		other, _ := locktest.Another(t, servers)
		lease := locktest.Lock(t, c.Mutex("x"))
		locktest.Refused(t, c.Mutex("x"))
		if _, err := other.Mutex("x").TryLock(lease.Context()); !errors.Is(err, quorumlock.ErrHeld) {
			t.Errorf("TryLock at another client, within the lease: %v, want ErrHeld", err)
		}
		locktest.Unlock(t, lease)
		locktest.Nothing(t, servers)
	})
}

func TestReentryOfAGoodLeaseRidesOutAnOutage(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3, quorumlock.WithTTL(10*time.Second))
		l := locktest.MustLock(t, c.Mutex("x"))
		for _, s := range servers {
			s.Kill()
		}
		time.Sleep(8 * time.Second)
		at := time.Now()
		ctx, cancel := context.WithTimeout(l.Context(), time.Second)
		defer cancel()
		inner, err := c.Mutex("x").Lock(ctx)
		if err != nil {
			t.Errorf("Lock gave up after %v with %v of validity left: %v", time.Since(at), time.Until(l.ValidUntil()), err)
		} else {
			_ = inner.Unlock(t.Context())
		}
		for _, s := range servers {
			s.Restart(true)
		}
		_ = l.Unlock(t.Context()) // go-redis may take a second to find out that the nodes are back
	})
}
