package redlock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

func ranAll(servers []*embedded.Server) int {
	n := 0
	for _, s := range servers {
		n += s.Ran()
	}
	return n
}

// lockIn acquires a lock with a context of a lease's.
func lockIn(t *testing.T, ctx context.Context, l quorumlock.Locker) *quorumlock.Lease {
	t.Helper()
	lease, err := l.Lock(ctx)
	if err != nil {
		t.Fatalf("Lock of %q within a lease: %v", l.Name(), err)
	}
	return lease
}

// A context that descends from a lease's enters the same hold, without asking anybody, and the last to
// leave releases, in whatever order they leave.
func TestContextOfALeaseEntersTheSameHold(t *testing.T) {
	for name, order := range map[string][]int{
		"innermost first": {2, 1, 0},
		"outermost first": {0, 1, 2},
		"middle first":    {1, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 5)
				outer := locktest.Lock(t, c.Mutex("x"))
				before := ranAll(servers)
				middle := lockIn(t, context.WithValue(outer.Context(), userKey{}, 1), c.Mutex("x"))
				inner, err := c.Mutex("x").TryLock(middle.Context())
				if err != nil {
					t.Fatal(err)
				}
				if n := ranAll(servers) - before; n != 0 {
					t.Errorf("entering twice ran %d scripts, want none", n)
				}
				leases := []*quorumlock.Lease{outer, middle, inner}
				for _, l := range leases {
					if l.Owner() != outer.Owner() || l.Token() != outer.Token() || l.HoldCount() != 3 {
						t.Errorf("owner %s, token %d, count %d: want those of the outer lease and 3", l.Owner(), l.Token(), l.HoldCount())
					}
				}
				for i, n := range order {
					locktest.Refused(t, c.Mutex("x"))
					locktest.Unlock(t, leases[n])
					if got := leases[n].HoldCount(); got != 2-i {
						t.Errorf("hold count %d, want %d", got, 2-i)
					}
					if leases[n].Context().Err() == nil {
						t.Error("the context of an unlocked lease lives on")
					}
					if err := leases[n].Unlock(t.Context()); !errors.Is(err, quorumlock.ErrNotHeld) {
						t.Errorf("second Unlock: %v, want ErrNotHeld", err)
					}
					if err := leases[n].Extend(t.Context()); !errors.Is(err, quorumlock.ErrNotHeld) {
						t.Errorf("Extend after Unlock: %v, want ErrNotHeld", err)
					}
				}
				locktest.Unlock(t, locktest.TryLock(t, c.Mutex("x")))
				locktest.Nothing(t, servers)
			})
		})
	}
}

// When little is left of the TTL, entering again extends first.
func TestEnteringAgainExtendsWhenLittleIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5, quorumlock.WithoutRenewal())
		outer := locktest.Lock(t, c.Mutex("x"))
		time.Sleep(4 * time.Second)
		before := ranAll(servers)
		locktest.Unlock(t, lockIn(t, outer.Context(), c.Mutex("x")))
		if n := ranAll(servers) - before; n != 0 {
			t.Errorf("%d scripts ran with 6 s of 10 left, want none", n)
		}
		time.Sleep(4 * time.Second)
		inner := lockIn(t, outer.Context(), c.Mutex("x"))
		synctest.Wait()
		if n := ranAll(servers) - before; n != 5 {
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

// When a hold is lost all who entered are told, and each Unlock says so.
func TestLossIsToldToAllWhoEntered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		outer := locktest.Lock(t, c.Mutex("x"))
		inner := lockIn(t, context.WithoutCancel(outer.Context()), c.Mutex("x"))
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

// A context that outlives the hold it came from is a fresh owner's.
func TestContextWithoutCancelAcquiresAgainAfterUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		lease := locktest.Lock(t, c.Mutex("x"))
		detached := context.WithoutCancel(lease.Context())
		entered := lockIn(t, detached, c.Mutex("x"))
		if entered.Owner() != lease.Owner() {
			t.Error("a live hold was not entered")
		}
		locktest.Unlock(t, entered)
		locktest.Unlock(t, lease)
		if _, err := c.Mutex("x").Lock(lease.Context()); !errors.Is(err, context.Canceled) {
			t.Errorf("Lock with the context of an unlocked lease: %v, want context.Canceled", err)
		}
		anew := lockIn(t, detached, c.Mutex("x"))
		if anew.Owner() == lease.Owner() || anew.Token() <= lease.Token() {
			t.Errorf("owner %s with token %d after %s with %d: want a new hold", anew.Owner(), anew.Token(), lease.Owner(), lease.Token())
		}
		locktest.Refused(t, c.Mutex("x"))
		locktest.Unlock(t, anew)
		locktest.Nothing(t, servers)
	})
}

func TestDifferentLocksNest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		a := locktest.Lock(t, c.Mutex("a"))
		b := lockIn(t, a.Context(), c.Mutex("b"))
		again := lockIn(t, b.Context(), c.Mutex("a")) // past b, the hold of a
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
	synctest.Test(t, func(t *testing.T) {
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

// WithOwner enters a hold without its context.
func TestSharedOwnerEntersTheHoldAcrossContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		o := quorumlock.NewOwner()
		first := locktest.Lock(t, c.Mutex("x", quorumlock.WithOwner(o)))
		second := locktest.TryLock(t, c.Mutex("x", quorumlock.WithOwner(o)))
		third := locktest.TryLock(t, c.Mutex("x", quorumlock.WithOwner(first.Owner())))
		if first.HoldCount() != 3 || second.Token() != first.Token() || third.Token() != first.Token() {
			t.Errorf("hold count %d, tokens %d, %d, %d: want one hold of three", first.HoldCount(), first.Token(), second.Token(), third.Token())
		}
		locktest.Refused(t, c.Mutex("x"))
		locktest.Refused(t, c.Mutex("x", quorumlock.WithOwner(quorumlock.NewOwner())))
		other := locktest.TryLock(t, c.Mutex("y", quorumlock.WithOwner(o)))
		if other.Token() == 0 || other.Owner() == first.Owner() {
			t.Error("an owner's hold of one lock was taken for that of another")
		}
		for _, l := range []*quorumlock.Lease{first, second, third, other} {
			locktest.Unlock(t, l)
		}
		again := locktest.Lock(t, c.Mutex("x", quorumlock.WithOwner(o)))
		if again.Token() <= first.Token() {
			t.Errorf("token %d after %d", again.Token(), first.Token())
		}
		locktest.Unlock(t, again)
		locktest.Nothing(t, servers)
	})
}

// The hold that is entered ends while it is extended for the newcomer: Lock acquires anew, as if it had
// come a moment later.
func TestSharedOwnerWhoseHoldEndsMeanwhileAcquiresAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		o := quorumlock.NewOwner()
		m := c.Mutex("x", quorumlock.WithOwner(o), quorumlock.WithoutRenewal())
		first := locktest.Lock(t, m)
		time.Sleep(7 * time.Second)
		locktest.Each(servers, func(s *embedded.Server) { s.Delay(10 * time.Millisecond) })
		time.AfterFunc(5*time.Millisecond, func() {
			if err := first.Unlock(t.Context()); err != nil {
				t.Error("Unlock:", err)
			}
		})
		second, err := m.Lock(t.Context())
		if err != nil {
			t.Fatalf("Lock: %v, want a hold of its own once the first is over", err)
		}
		if second.Token() <= first.Token() {
			t.Errorf("token %d after %d", second.Token(), first.Token())
		}
		locktest.Unlock(t, second)
		locktest.Nothing(t, servers)
	})
}

// Many share an owner, and wait while somebody else holds: they come in together.
func TestSharedOwnerWaitsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		o := quorumlock.NewOwner()
		holder := locktest.Lock(t, c.Mutex("x"))
		leases := make(chan *quorumlock.Lease)
		for i := range 6 {
			opts := []quorumlock.Option{quorumlock.WithOwner(o)}
			if i == 2 {
				opts = nil // one who does not belong to them, in their midst
			}
			go func() {
				l, err := c.Mutex("x", opts...).Lock(t.Context())
				if err != nil {
					t.Error("Lock:", err)
				}
				leases <- l
			}()
			time.Sleep(time.Millisecond)
		}
		locktest.Unlock(t, holder)
		var together []*quorumlock.Lease
		for len(together) < 5 {
			select {
			case l := <-leases:
				together = append(together, l)
			case <-time.After(time.Minute):
				t.Errorf("only %d of 5 with one owner have entered its hold: the others wait for it to end", len(together))
				for _, l := range together {
					locktest.Unlock(t, l)
				}
				for range 6 - len(together) {
					locktest.Unlock(t, <-leases)
				}
				return
			}
		}
		for _, l := range together {
			locktest.Unlock(t, l)
		}
		locktest.Unlock(t, <-leases)
		locktest.Nothing(t, servers)
	})
}

// userKey is the key of a value that the caller of a lock has put into its context.
type userKey struct{}

// Callers who name an owner look up whenever a lock is acquired for some owner: it may be theirs. If it is not, they
// keep their turns, and ask no node.
func TestCallersWhoNameAnOwnerKeepTheirTurnsWhileOtherOwnersAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 2, 3)
		locktest.Each(servers, func(s *embedded.Server) { s.Delay(time.Millisecond) })
		c := clients[0]
		holder := locktest.Lock(t, clients[1].Mutex("x"))
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				lease, err := c.Mutex("x", quorumlock.WithOwner(quorumlock.NewOwner())).Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				locktest.MustUnlock(t, lease)
			})
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		before := servers[0].Ran("acquire")
		const others = 20
		for range others {
			locktest.Unlock(t, locktest.Lock(t, c.Mutex("y", quorumlock.WithOwner(quorumlock.NewOwner()))))
		}
		if n := servers[0].Ran("acquire") - before; n != others {
			t.Errorf("%d attempts at a node while %d other locks were acquired", n, others)
		}
		locktest.Unlock(t, holder)
		wg.Wait()
		if !slices.IsSorted(order) || len(order) != 8 {
			t.Errorf("served in the order %v, want that of the calls", order)
		}
		locktest.Nothing(t, servers)
	})
}
