package queue

import (
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// Clients with clocks that are minutes off have their shares of the turns, and no more, beside
// clients with correct clocks. A client that makes one call has never heard the time from a node.
func TestAClientWhoseClockIsMinutesOffHasItsShareOfTheTurns(t *testing.T) {
	for name, fresh := range map[string]bool{"the same clients": false, "a new client for each call": true} {
		locktest.Run(t, name, func(t *testing.T) {
			_, servers := locktest.Fleet(t, 0, 3)
			for _, s := range servers {
				s.Delay(200 * time.Microsecond)
			}
			client := func(ahead time.Duration) *redlock.Client {
				c, paths := locktest.Skewed(t, servers, ahead)
				for _, p := range paths {
					p.Delay(200 * time.Microsecond)
				}
				return c
			}
			const callers, lasts = 2, 5 * time.Second
			clocks := []time.Duration{10 * time.Minute, -10 * time.Minute, 0, 0}
			grants, longest, all := make([]int, len(clocks)), make([]time.Duration, len(clocks)), 0
			var mu sync.Mutex
			var wg sync.WaitGroup
			began := time.Now()
			for i, ahead := range clocks {
				c := client(ahead)
				for range callers {
					wg.Go(func() {
						for time.Since(began) < lasts {
							c := c
							if fresh && ahead != 0 {
								c = client(ahead)
							}
							called := time.Now()
							lease := locktest.MustLock(t, c.Mutex("x"))
							mu.Lock()
							grants[i]++
							all++
							longest[i] = max(longest[i], time.Since(called))
							mu.Unlock()
							time.Sleep(20 * time.Millisecond)
							locktest.MustUnlock(t, lease)
						}
					})
				}
			}
			wg.Wait()
			for i, n := range grants {
				if share := float64(n*len(clocks)) / float64(all); share < 0.7 || share > 1.3 || longest[i] > time.Second {
					t.Errorf("the client whose clock is %v ahead has %.0f %% of its share and waited for up to %v; grants: %v", clocks[i], 100*share, longest[i], grants)
				}
			}
			locktest.NoLocks(t, servers)
		})
	}
}

// A waiter keeps its ticket while no node answers for longer than a client relies on their clocks.
func TestAnOutageChangesNoTicket(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 3, 3, quorumlock.WithTTL(10*time.Minute), quorumlock.WithNodeTimeout(time.Second))
		holder := locktest.MustLock(t, clients[0].Mutex("x"))
		first := locktest.Waiter(t, clients[1].Mutex("x"))
		time.Sleep(5 * time.Second)
		second := locktest.Waiter(t, clients[2].Mutex("x"))
		locktest.Each(servers, (*embedded.Server).Kill)
		time.Sleep(90 * time.Second)
		locktest.Each(servers, func(s *embedded.Server) { s.Restart(true) })
		for range 300 {
			time.Sleep(10 * time.Millisecond)
			if in, err := clients[0].Inspect(t.Context(), "x"); err == nil && len(in.State.Queue) == 2 {
				if apart := in.State.Queue[1].Since.Sub(in.State.Queue[0].Since); apart < 4*time.Second {
					t.Errorf("the tickets of calls 5 s apart are %v apart", apart)
				}
				break
			}
		}
		locktest.MustUnlock(t, holder)
		locktest.MustUnlock(t, <-first)
		locktest.MustUnlock(t, <-second)
	})
}

// The slots of a semaphore are granted in a few round trips, however many callers a process has.
func TestManyCallersOfAProcessGetSlotsAtOnce(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		locktest.Each(servers, func(s *embedded.Server) { s.Delay(5 * time.Millisecond) })
		began := time.Now()
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() { locktest.MustLock(t, c.Semaphore("s", 64)) })
		}
		all.Wait()
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("64 slots took %v, want a few round trips of 10 ms", took)
		}
	})
}
