package queue

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// acquires counts the runs of acquire at a server, in each 25 ms from now on.
func acquires(s *embedded.Server) (counted func() []int) {
	var mu sync.Mutex
	var counts []int
	since := time.Now()
	s.After(func(r embedded.Run) {
		if r.Script != "acquire" {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		window := int(time.Since(since) / (25 * time.Millisecond))
		counts = append(counts, make([]int, max(0, window+1-len(counts)))...)
		counts[window]++
	})
	return func() []int {
		s.After(nil)
		mu.Lock()
		defer mu.Unlock()
		return counts
	}
}

// When the first is overdue, the others are called at once, so that their time is up together. A
// waiter that has come finds the same dead one at the front, and must not call the others again.
func TestWaitersBehindADeadOneDoNotCallEachOther(t *testing.T) {
	for name, opts := range map[string][]quorumlock.Option{
		"who are handed the lock": nil,
		"who are called":          {quorumlock.WithoutRenewal()},
	} {
		locktest.Run(t, name, func(t *testing.T) {
			const waiters = 50
			servers, _ := locktest.Nodes(t, 3)
			holder, _ := locktest.Another(t, servers)
			lease := locktest.Lock(t, holder.Mutex("x"))
			first, living := crowdAt(t, servers), crowdAt(t, servers)
			first.come(t, 1, "x")
			locktest.Each(living.paths, func(p *embedded.Server) { p.Delay(500 * time.Microsecond) })
			granted := make(chan struct{})
			for i := range waiters {
				c, err := redlock.New(living.nodes, opts...)
				locktest.Must(t, err, "New")
				living.clients = append(living.clients, c)
				living.waiting.Go(func() {
					if l, err := c.Mutex("x").Lock(living.ctx); err == nil {
						if i > 0 {
							t.Errorf("waiter %d was the first to be granted", i)
						}
						close(granted)
						<-living.ctx.Done()
						locktest.MustUnlock(t, l)
					}
				})
				time.Sleep(time.Millisecond)
			}
			first.die()
			time.Sleep(time.Second) // from now on, nothing is handed to the dead one
			var all []func() []int
			for _, s := range servers {
				all = append(all, acquires(s))
			}
			freed := time.Now()
			locktest.Unlock(t, lease)
			<-granted
			servedAfter(t, freed)
			for i, counted := range all {
				counts := counted()
				t.Logf("node %d: %v", i+1, counts)
				if most := slices.Max(counts); most > 2*waiters {
					t.Errorf("node %d ran %d acquires in 25 ms, want 2 a waiter at most", i+1, most)
				}
			}
		})
	}
}
