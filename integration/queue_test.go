package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock/redlock"
)

func TestTenThousandHandoffsWhileNodesComeAndGo(t *testing.T) {
	needServers(t)
	const clients, callers, locks, handoffs = 8, 200, 20, 10_000
	all := make([]*redlock.Client, clients)
	for i := range all {
		all[i] = dial(t, five)
	}
	resources := make([]fenced, locks)

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	stop := make(chan struct{})
	var faults errgroup.Group
	faults.Go(func() error {
		for i := 0; ; i++ {
			s := five[i%len(five)]
			select {
			case <-stop:
				return nil
			case <-time.After(time.Second):
			}
			s.kill(t)
			select {
			case <-stop:
			case <-time.After(500 * time.Millisecond):
			}
			s.restart(t)
		}
	})

	g, ctx := errgroup.WithContext(ctx)
	for caller := range callers {
		c := all[caller%clients]
		g.Go(func() error {
			for range handoffs / callers {
				which := rand.N(locks)
				lease, err := c.Mutex(fmt.Sprintf("line:%d", which)).Lock(ctx)
				if err != nil {
					return err
				}
				if err := resources[which].write(lease.Token()); err != nil {
					return err
				}
				// A node that has just died may be one of those that granted: then the others are no
				// quorum for this release, and the key of the dead one is gone at its TTL.
				_ = lease.Unlock(ctx)
			}
			return nil
		})
	}
	err := g.Wait()
	close(stop)
	must(t, faults.Wait())
	must(t, err)
	writes := 0
	for i := range resources {
		writes += resources[i].writes
	}
	if writes != handoffs {
		t.Errorf("%d writes, want %d", writes, handoffs)
	}
	noLocks(t, five, patience)
}

// The cancellations fall around the moment the turn comes: what a cancelled waiter leaves behind would
// keep the next from its turn.
func TestTurnIsNeverLostWhenItsWaiterIsCancelled(t *testing.T) {
	needServers(t)
	const clients, rounds = 6, 300
	all := make([]*redlock.Client, clients)
	for i := range all {
		all[i] = dial(t, five, unhurried)
	}
	served := 0
	for range rounds {
		holder := lock(t, all[0], "turns")
		var g errgroup.Group
		for i, c := range all[1:] {
			ctx, cancel := context.WithTimeout(t.Context(), rand.N(40*time.Millisecond))
			if i == 0 { // one of them waits for as long as it takes
				cancel()
				ctx, cancel = context.WithTimeout(t.Context(), patience)
			}
			g.Go(func() error {
				defer cancel()
				lease, err := c.Mutex("turns").Lock(ctx)
				if err != nil {
					if i == 0 {
						return err
					}
					return nil
				}
				served++ // guarded by the lock
				return lease.Unlock(t.Context())
			})
		}
		time.Sleep(rand.N(20 * time.Millisecond))
		must(t, holder.Unlock(t.Context()))
		must(t, g.Wait())
	}
	t.Logf("%d of %d waiters were served, the others cancelled", served, rounds*(clients-1))
	if served <= rounds || served == rounds*(clients-1) {
		t.Errorf("the cancellations miss the turn")
	}
	noLocks(t, five, patience)
}
