package queue

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// windows counts the runs of acquire at a server, in each 25 ms from now on.
func windows(s *embedded.Server) (counted func() []int) {
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
func TestWaitersBehindADeadFirstDoNotCallEachOther(t *testing.T) {
	for name, opts := range map[string][]quorumlock.Option{
		"who are handed the lock": nil,
		"who are called":          {quorumlock.WithoutRenewal()},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			const waiters = 50
			servers, _ := testkit.Nodes(t, 3)
			holder, _ := testkit.Another(t, servers)
			lease := testkit.Lock(t, holder.Mutex("x"))
			first, living := crowdAt(t, servers), crowdAt(t, servers)
			first.come(t, 1, "x")
			testkit.Each(living.paths, func(p *embedded.Server) { p.Delay(500 * time.Microsecond) })
			granted := make(chan struct{})
			for i := range waiters {
				c, err := redlock.New(living.nodes, opts...)
				testkit.Must(t, err, "New")
				living.clients = append(living.clients, c)
				living.waiting.Go(func() {
					if l, err := c.Mutex("x").Lock(living.ctx); err == nil {
						if i > 0 {
							t.Errorf("waiter %d was the first to be granted", i)
						}
						close(granted)
						<-living.ctx.Done()
						testkit.MustUnlock(t, l)
					}
				})
				time.Sleep(time.Millisecond)
			}
			first.die()
			time.Sleep(time.Second) // from now on, nothing is handed to the dead one
			var all []func() []int
			for _, s := range servers {
				all = append(all, windows(s))
			}
			freed := time.Now()
			testkit.Unlock(t, lease)
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

// acquires returns how many acquires the servers run within a time.
func acquires(servers []*embedded.Server, within time.Duration) int {
	before := testkit.Ran(servers, "acquire", "slot_acquire")
	time.Sleep(within)
	return testkit.Ran(servers, "acquire", "slot_acquire") - before
}

// wait has clients wait for a lock until the end of the test. An acquisition fails the test.
func wait(t *testing.T, clients []*redlock.Client, lock func(*redlock.Client) quorumlock.Locker) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	for _, c := range clients {
		testkit.Go(func() error {
			if lease, err := lock(c).Lock(ctx); err == nil {
				t.Errorf("a waiter acquired the lock with token %d", lease.Token())
			}
			return nil
		})
	}
}

// Each holder lacks two nodes, so most nodes have a free slot, but no slot is free at a quorum.
func TestWaitersForSlotsThatAreFreeAtDifferentNodesAskRarely(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		servers, _ := testkit.Nodes(t, 5)
		for _, dead := range [][2]int{{3, 4}, {0, 1}} {
			paths, nodes := testkit.Paths(t, servers)
			testkit.Kill(paths[dead[0]], paths[dead[1]])
			testkit.Lock(t, testkit.Of(t, nodes).Semaphore("x", 2))
		}
		testkit.Each(servers, func(s *embedded.Server) { s.Delay(time.Millisecond) })
		clients := make([]*redlock.Client, 20)
		for i := range clients {
			clients[i], _ = testkit.Another(t, servers)
		}
		wait(t, clients, func(c *redlock.Client) quorumlock.Locker { return c.Semaphore("x", 2) })
		time.Sleep(5 * time.Second)
		if n := acquires(servers, time.Second); n > 300 {
			t.Errorf("%d acquires in a second, want at most 300", n)
		}
	})
}

// Redisson's spin locks and fair locks announce no release, so a waiter polls every 5 ms.
func TestAWaiterBesideSilentHoldersOfRedissonPollsEvery5ms(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 5)
		for _, s := range servers {
			s.Delay(500 * time.Microsecond)
			s.Redis.HSet("x", "8743c9c0-0795-4907-87fd-6c719a6b4586:1", "1")
			testkit.Go(func() error {
				for ; t.Context().Err() == nil; time.Sleep(100 * time.Millisecond) {
					s.Redis.SetTTL("x", time.Minute) // another hold
				}
				return nil
			})
		}
		wait(t, []*redlock.Client{c}, func(c *redlock.Client) quorumlock.Locker { return c.Mutex("x") })
		time.Sleep(time.Second)
		if n := acquires(servers, time.Second); n < 500 || n > 1500 {
			t.Errorf("%d acquires in a second, want 500 to 1500", n)
		}
	})
}
