package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestTenThousandHandoffsWhileNodesComeAndGo(t *testing.T) {
	needServers(t)
	const clients, callers, locks, handoffs = 8, 200, 20, 10_000
	all := make([]*redlock.Client, clients)
	for i := range all {
		all[i] = dial(t, five)
	}
	resources := make([]testkit.Resource, locks)
	for i := range resources {
		resources[i].T = t
	}

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
				resources[which].Enter(lease)
				resources[which].Leave(lease)
				// A node that has just died may be one of those that granted. The others are then
				// no quorum for this release, and the key of the dead one expires at its TTL.
				_ = lease.Unlock(ctx)
			}
			return nil
		})
	}
	err := g.Wait()
	close(stop)
	must(t, faults.Wait())
	must(t, err)
	grants := 0
	for i := range resources {
		grants += resources[i].Grants()
	}
	if grants != handoffs {
		t.Errorf("%d grants, want %d", grants, handoffs)
	}
	noLocks(t, five, patience)
}
