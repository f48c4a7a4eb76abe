package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// overtaking is fleet, but all clients except the first reach the nodes over clients of their own. Each call has a
// connection to itself there, so that a later one may overtake it.
func overtaking(t *testing.T, clients, n int, opts ...quorumlock.Option) ([]*redlock.Client, []*embedded.Server) {
	t.Helper()
	over := func(s *embedded.Server, opts ...node.Option) (*node.Node, error) {
		client := redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Dialer: s.DialContext, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true})
		t.Cleanup(func() { _ = client.Close() })
		return node.New(client, append(opts, node.WithName(s.Name))...), nil
	}
	return locktest.FleetOver(t, over, clients, n, opts...)
}

func TestWaitersAreServedInTheOrderTheyCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters = 12
		clients, servers := locktest.Fleet(t, waiters+1, 5)
		holder := locktest.MustLock(t, clients[0].Mutex("x"))
		var served []int
		var wg sync.WaitGroup
		for i := range waiters {
			wg.Go(func() {
				lease := locktest.MustLock(t, clients[i+1].Mutex("x"))
				served = append(served, i) // guarded by the lock
				time.Sleep(time.Millisecond)
				locktest.MustUnlock(t, lease)
			})
			time.Sleep(time.Millisecond) // each has a ticket of its own
		}
		start := time.Now()
		locktest.MustUnlock(t, holder)
		wg.Wait()
		for i, w := range served {
			if w != i {
				t.Fatalf("served in the order %v", served)
			}
		}
		if d := time.Since(start); d > waiters*5*time.Millisecond {
			t.Errorf("%d handoffs took %v: somebody was not woken", waiters, d)
		}
		locktest.NoLocks(t, servers)
	})
}

func TestOneProcessHasThreeEntriesAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 3, 5)
		holder := locktest.MustLock(t, clients[0].Mutex("x"))
		var crowd, other []int
		var order atomic.Int64
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				lease := locktest.MustLock(t, clients[1].Mutex("x"))
				crowd = append(crowd, int(order.Add(1)))
				time.Sleep(time.Millisecond) // for the next of the crowd to be queued
				locktest.MustUnlock(t, lease)
			})
		}
		time.Sleep(time.Millisecond)
		wg.Go(func() {
			lease := locktest.MustLock(t, clients[2].Mutex("x"))
			other = append(other, int(order.Add(1)))
			locktest.MustUnlock(t, lease)
		})
		time.Sleep(time.Second) // a refresh: those who come at one instant may not all be counted at first
		in, err := clients[0].Inspect(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range in.Nodes {
			if n.State.Waiting != 4 {
				t.Errorf("%d are queued at %s, want three of the crowd and one", n.State.Waiting, n.Node)
			}
		}
		callers := 0
		for _, w := range in.State.Queue {
			callers += w.Callers
		}
		if callers != 21 {
			t.Errorf("the queue stands for %d callers, want 21: %+v", callers, in.State.Queue)
		}
		locktest.MustUnlock(t, holder)
		wg.Wait()
		if other[0] != 21 {
			t.Errorf("the single caller, which called last, was served as number %d", other[0])
		}
		if len(crowd) != 20 {
			t.Errorf("%d of the crowd were served", len(crowd))
		}
		locktest.NoLocks(t, servers)
	})
}

// standIn queues a waiter at every server that never comes when it is called.
func standIn(t *testing.T, servers []*embedded.Server, name string, ticket time.Time) {
	t.Helper()
	for _, s := range servers {
		n, err := s.Node()
		if err != nil {
			t.Fatal(err)
		}
		p := wire.Entry{Waiter: "gone:1", Ticket: ticket.UnixMicro(), TTL: 2 * time.Second}
		if r := transport.Of(n).Send(t.Context(), wire.AcquireInTurn(name, "gone:2", time.Second, 1, p))[0]; r.Err != nil {
			t.Fatal(r.Err)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestTryLockLeavesNothingAndPassesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 2, 5)
		m := clients[0].Mutex("x")
		holder := locktest.MustLock(t, m)
		time.Sleep(time.Millisecond) // the last nodes have granted, too
		if _, err := clients[1].Mutex("x").TryLock(t.Context()); !errors.Is(err, quorumlock.ErrHeld) {
			t.Fatalf("TryLock of a held lock: %v, want ErrHeld", err)
		}
		time.Sleep(10 * time.Millisecond)
		for _, s := range servers {
			if keys := locktest.Keys(s); len(keys) != 1 {
				t.Errorf("TryLock left %q", keys)
			}
		}
		standIn(t, servers, "x", time.Now())
		locktest.MustUnlock(t, holder)
		if _, err := clients[1].Mutex("x").TryLock(t.Context()); !errors.Is(err, quorumlock.ErrHeld) {
			t.Fatalf("TryLock of a free lock with somebody first in the queue: %v, want ErrHeld", err)
		}
		time.Sleep(1001 * time.Millisecond) // the one whose turn it was has not come
		lease, err := clients[1].Mutex("x").TryLock(t.Context())
		if err != nil {
			t.Fatalf("TryLock when the turn of the first in the queue has passed: %v", err)
		}
		locktest.MustUnlock(t, lease)
		locktest.NoLocks(t, servers)
	})
}

func TestADeadFirstWaiterIsPassedWithinTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 2, 5)
		holder := locktest.MustLock(t, clients[0].Mutex("x"))
		standIn(t, servers, "x", time.Now())
		done := make(chan struct{})
		go func() {
			defer close(done)
			locktest.MustUnlock(t, locktest.MustLock(t, clients[1].Mutex("x")))
		}()
		time.Sleep(100 * time.Millisecond)
		start := time.Now()
		locktest.MustUnlock(t, holder)
		<-done
		if d := time.Since(start); d > 2*time.Second {
			t.Errorf("served after %v", d)
		}
		time.Sleep(2 * time.Second) // the entry of the dead waiter lives that long where nobody met it
		locktest.NoLocks(t, servers)
	})
}

// Some cancellation hits every stage of a wait: before the turn, as it comes, and after it.
func TestTurnIsPassedOnWhenItsWaiterIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 6, 5)
		r := rand.New(rand.NewPCG(1, 2))
		const rounds = 40
		var served, cancelled int
		for range rounds {
			holder := locktest.MustLock(t, clients[0].Mutex("x"))
			var wg sync.WaitGroup
			var count atomic.Int64
			begin := time.Now()
			for i, c := range clients[1:] {
				// The cancellations fall around the moment the lock is released.
				patience := time.Millisecond + time.Duration(r.Int64N(int64(300*time.Microsecond)))
				last := i == len(clients)-2
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					if last {
						ctx = t.Context()
					}
					lease, err := c.Mutex("x").Lock(ctx)
					if err != nil {
						if !errors.Is(err, context.DeadlineExceeded) {
							t.Errorf("Lock: %v", err)
						}
						return
					}
					count.Add(1)
					locktest.MustUnlock(t, lease)
				})
			}
			for _, s := range servers {
				s.Delay(time.Duration(r.Int64N(int64(50 * time.Microsecond))))
			}
			time.Sleep(time.Millisecond)
			locktest.MustUnlock(t, holder)
			wg.Wait()
			if d := time.Since(begin); d > 100*time.Millisecond {
				t.Fatalf("the one who was not cancelled waited %v: a turn was lost", d)
			}
			served += int(count.Load())
			cancelled += len(clients) - 1 - int(count.Load())
			time.Sleep(time.Millisecond)
		}
		t.Logf("%d served, %d cancelled", served, cancelled)
		if served < rounds+rounds/10 || cancelled < rounds {
			t.Errorf("%d served, %d cancelled: the cancellations miss the turn", served, cancelled)
		}
		locktest.NoLocks(t, servers)
	})
}

func TestNodesLostWhileManyWaitDoNotBreakTheOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters = 100
		clients, servers := locktest.Fleet(t, waiters+1, 5)
		holder := locktest.MustLock(t, clients[0].Mutex("x"))
		var served []int
		var wg sync.WaitGroup
		for i := range waiters {
			wg.Go(func() {
				lease := locktest.MustLock(t, clients[i+1].Mutex("x"))
				served = append(served, i)
				switch len(served) {
				case 5:
					servers[0].Kill()
				case 15:
					servers[1].Stall()
				case 25:
					servers[0].Restart(false)
					servers[1].Resume()
				}
				locktest.MustUnlock(t, lease)
			})
			time.Sleep(time.Millisecond)
		}
		locktest.MustUnlock(t, holder)
		wg.Wait()
		for i, w := range served {
			if w != i {
				t.Fatalf("served in the order %v", served)
			}
		}
		locktest.NoLocks(t, servers)
	})
}

// Tickets and token hints come from the clients' clocks, which may be wrong.
func TestClientsWhoseClocksDifferByMinutesStillExcludeEachOtherAndAreServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, servers := locktest.Fleet(t, 1, 5)
		var clients []*redlock.Client
		for _, ahead := range []time.Duration{0, 5 * time.Minute, -5 * time.Minute, 90 * time.Second, -time.Hour, time.Hour} {
			c, _ := skewed(t, servers, ahead)
			clients = append(clients, c)
		}
		const rounds = 20
		start := time.Now()
		resource := locktest.Resource{T: t}
		var wg sync.WaitGroup
		for _, c := range clients {
			wg.Go(func() {
				for range rounds {
					lease := locktest.MustLock(t, c.Mutex("x"))
					resource.Enter(lease)
					time.Sleep(time.Millisecond)
					resource.Leave(lease)
					locktest.MustUnlock(t, lease)
				}
			})
		}
		wg.Wait()
		if d, grants := time.Since(start), len(clients)*rounds; d > time.Duration(grants)*10*time.Millisecond {
			t.Errorf("%d grants took %v: somebody was stuck", grants, d)
		}
		locktest.NoLocks(t, servers)
	})
}

func TestHolderThatDiesHandsOnAtItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 2, 5, quorumlock.WithTTL(3*time.Second), quorumlock.WithoutRenewal())
		locktest.MustLock(t, clients[0].Mutex("x")) // and never unlocks
		start := time.Now()
		locktest.MustUnlock(t, locktest.MustLock(t, clients[1].Mutex("x")))
		if d := time.Since(start); d < 3*time.Second || d > 3*time.Second+100*time.Millisecond {
			t.Errorf("served after %v, want just after the TTL of 3s", d)
		}
		locktest.NoLocks(t, servers)
	})
}

func TestSplitVoteEndsInOneRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 3, 5)
		r := rand.New(rand.NewPCG(3, 4))
		for range 25 {
			for _, s := range servers {
				s.Delay(time.Duration(r.Int64N(int64(time.Millisecond))))
			}
			var wg sync.WaitGroup
			begin := time.Now()
			for _, c := range clients {
				wg.Go(func() { locktest.MustUnlock(t, locktest.MustLock(t, c.Mutex("x"))) })
			}
			wg.Wait()
			if d := time.Since(begin); d > 100*time.Millisecond {
				t.Errorf("three contenders took %v over nodes at most 2ms away", d)
			}
		}
		locktest.NoLocks(t, servers)
	})
}

func TestALongQueueRefreshesSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 1)
		holder := locktest.MustLock(t, c.Mutex("x"))
		n, err := servers[0].Node()
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close() //nolint:errcheck // a test's node
		const before = 800
		for i := range before {
			p := wire.Entry{Waiter: quorumlock.Owner(fmt.Sprintf("far:%d", i)), Ticket: int64(i), TTL: time.Hour}
			if r := transport.Of(n).Send(t.Context(), wire.AcquireInTurn("x", "far:0", time.Second, 1, p))[0]; r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, err := c.Mutex("x").Lock(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("Lock: %v", err)
			}
		}()
		time.Sleep(time.Second)
		counted := servers[0].Redis.CommandCount()
		time.Sleep(5 * time.Minute)
		refreshes := servers[0].Redis.CommandCount() - counted
		// An entry so far back is refreshed every 30 s, and the waiter looks when the holder's key would expire without
		// a renewal; each time is a handful of commands. Every 600 ms it would be some thousands.
		if refreshes > 1200 {
			t.Errorf("%d commands in five minutes for one waiter far back in the queue", refreshes)
		}
		state, err := transport.Of(n).Inspect(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		if state.Waiting != before+1 {
			t.Errorf("%d are queued, want %d: an entry was lost between two refreshes", state.Waiting, before+1)
		}
		cancel()
		<-done
		locktest.MustUnlock(t, holder)
	})
}

// A waiter that joins a long queue does not know how far back it is. It must come again before its entry ends, and not only
// when somebody that far back has to.
func TestALongQueueThatStandsStillLosesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		var clients []*redlock.Client
		for range locktest.Thorough(150, 60) { // the clients after the 53rd refresh their entries before they end
			d, _ := locktest.Another(t, servers)
			clients = append(clients, d)
		}
		for _, subscribed := range []bool{false, true} { // from the first round on
			w := locktest.Lock(t, c.Mutex("x"))
			var mu sync.Mutex
			var order []int
			var running sync.WaitGroup
			for i, d := range clients {
				running.Go(func() {
					l, err := d.Mutex("x").Lock(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
					if err := l.Unlock(t.Context()); err != nil {
						t.Error(err)
					}
				})
				time.Sleep(time.Millisecond)
			}
			time.Sleep(3 * time.Second)
			freed := time.Now()
			locktest.Unlock(t, w)
			running.Wait()
			if took := time.Since(freed); took > 100*time.Millisecond || !slices.IsSorted(order) {
				t.Errorf("subscribed %v: it took %v to serve %d waiters, in the order %v", subscribed, took, len(clients), order)
			}
		}
	})
}
