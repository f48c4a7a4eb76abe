package hold

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// WithOwner enters a hold without its context.
func TestSharedOwnerEntersTheHoldAcrossContexts(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
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

// The entered hold ends while it is extended for the newcomer: Lock acquires anew, as if it had
// come a moment later.
func TestSharedOwnerWhoseHoldEndsMeanwhileAcquiresAgain(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		o := quorumlock.NewOwner()
		m := c.Mutex("x", quorumlock.WithOwner(o), quorumlock.WithoutRenewal())
		first := locktest.Lock(t, m)
		time.Sleep(7 * time.Second)
		locktest.Each(servers, func(s *embedded.Server) { s.Delay(10 * time.Millisecond) })
		time.AfterFunc(5*time.Millisecond, func() {
			locktest.MustUnlock(t, first)
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
	locktest.Bubble(t, func(t *testing.T) {
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

// Callers with a named owner check each grant in their process: it may be their owner's. If it is
// not, they keep their turns, and ask no node.
func TestCallersWhoNameAnOwnerKeepTheirTurnsWhileOtherOwnersAcquire(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
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
