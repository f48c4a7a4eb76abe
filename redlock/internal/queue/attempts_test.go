package queue

import (
	"context"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// acquires returns how many acquires the servers run within a time.
func acquires(servers []*embedded.Server, within time.Duration) (n int) {
	for _, s := range servers {
		n -= s.Ran("acquire", "slot_acquire")
	}
	time.Sleep(within)
	for _, s := range servers {
		n += s.Ran("acquire", "slot_acquire")
	}
	return n
}

// wait has clients wait for a lock until the end of the test.
func wait(t *testing.T, clients []*redlock.Client, lock func(*redlock.Client) quorumlock.Locker) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	for _, c := range clients {
		locktest.Go(func() error {
			if lease, err := lock(c).Lock(ctx); err == nil {
				t.Errorf("a waiter has got token %d", lease.Token())
			}
			return nil
		})
	}
}

// Two holders lack different nodes, so most nodes have a free slot, but no slot is free at a quorum.
func TestWaitersForSlotsThatAreFreeAtDifferentNodesAskRarely(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 5)
		for _, dead := range [][2]int{{3, 4}, {0, 1}} {
			paths, nodes := locktest.Paths(t, servers)
			locktest.Kill(paths[dead[0]], paths[dead[1]])
			locktest.Lock(t, locktest.Of(t, nodes).Semaphore("x", 2))
		}
		locktest.Each(servers, func(s *embedded.Server) { s.Delay(time.Millisecond) })
		clients := make([]*redlock.Client, 20)
		for i := range clients {
			clients[i], _ = locktest.Another(t, servers)
		}
		wait(t, clients, func(c *redlock.Client) quorumlock.Locker { return c.Semaphore("x", 2) })
		time.Sleep(5 * time.Second)
		if n := acquires(servers, time.Second); n > 300 {
			t.Errorf("%d acquires in a second", n)
		}
	})
}

// Redisson's spin locks and fair locks announce no release, so a waiter polls every 5 ms.
func TestAWaiterBesideSilentHoldersOfRedissonPolls(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		for _, s := range servers {
			s.Delay(500 * time.Microsecond)
			s.Redis.HSet("x", "8743c9c0-0795-4907-87fd-6c719a6b4586:1", "1")
			locktest.Go(func() error {
				for ; t.Context().Err() == nil; time.Sleep(100 * time.Millisecond) {
					s.Redis.SetTTL("x", time.Minute) // another hold
				}
				return nil
			})
		}
		wait(t, []*redlock.Client{c}, func(c *redlock.Client) quorumlock.Locker { return c.Mutex("x") })
		time.Sleep(time.Second)
		if n := acquires(servers, time.Second); n < 500 || n > 1500 {
			t.Errorf("%d acquires in a second", n)
		}
	})
}
