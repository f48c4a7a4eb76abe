package queue

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
)

func TestOneProcessHasThreeEntriesAtMost(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
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
		// A refresh: callers of one instant may not all be counted at first.
		time.Sleep(time.Second)
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

func TestTryLockLeavesNothingAndPassesNobody(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
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
		time.Sleep(1001 * time.Millisecond) // the first in the queue has missed its turn
		lease, err := clients[1].Mutex("x").TryLock(t.Context())
		if err != nil {
			t.Fatalf("TryLock when the turn of the first in the queue has passed: %v", err)
		}
		locktest.MustUnlock(t, lease)
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

// The queue costs no subscription to callers that need not wait.
func TestUncontendedLockSubscribesToNothing(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		cs, servers := locktest.Fleet(t, 2, 3)
		locktest.Unlock(t, locktest.Lock(t, cs[0].Mutex("x")))
		for _, s := range servers {
			if channels := s.Redis.PubSubChannels("*"); len(channels) > 0 || s.Ran() != 2 {
				t.Errorf("%s: %d scripts and subscriptions to %q, want two and none", s.Name, s.Ran(), channels)
			}
		}
		lease := locktest.Lock(t, cs[0].Mutex("x"))
		go func() { locktest.MustUnlock(t, locktest.MustLock(t, cs[1].Mutex("x"))) }()
		time.Sleep(10 * time.Millisecond)
		for _, s := range servers {
			if channels := s.Redis.PubSubChannels("*"); len(channels) != 1 {
				t.Errorf("%s: subscriptions to %q, want that of the one who waits", s.Name, channels)
			}
		}
		locktest.MustUnlock(t, lease)
		locktest.Nothing(t, servers)
	})
}

func TestWhoIsNextRefreshesNoLaterForBeingTold(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		cs, servers := locktest.Fleet(t, 2, 3)
		holder := locktest.MustLock(t, cs[0].Mutex("x"))
		done := make(chan struct{})
		go func() {
			defer close(done)
			locktest.MustUnlock(t, locktest.MustLock(t, cs[1].Mutex("x")))
		}()
		time.Sleep(500 * time.Millisecond)
		before := servers[0].Ran("acquire")
		for _, s := range servers {
			line, err := s.Redis.ZMembers(wire.QueueKey("x"))
			if err != nil || len(line) != 1 {
				t.Fatalf("control: %v %v", line, err)
			}
			for _, waiter := range line {
				client, _, _ := strings.Cut(waiter, ":")
				if s.Redis.Publish(wire.WakeChannel(client), "next "+waiter+" x") != 1 {
					t.Fatal("control: nobody listens")
				}
			}
		}
		time.Sleep(150 * time.Millisecond) // it was due after 600 ms
		if servers[0].Ran("acquire") == before {
			t.Error("the refresh was put off")
		}
		locktest.MustUnlock(t, holder)
		<-done
	})
}

// A handoff costs at most 3N+1 scripts, however many wait.
func TestHandoffCost(t *testing.T) {
	for _, contenders := range []int{4, 16} {
		locktest.Run(t, fmt.Sprint(contenders), func(t *testing.T) {
			const rounds = 8
			clients, servers := locktest.Fleet(t, contenders, 5)
			for i, s := range servers {
				s.Delay(time.Duration(i+1) * 20 * time.Microsecond) // they never answer all at once
			}
			var wg sync.WaitGroup
			for _, c := range clients {
				wg.Go(func() {
					for range rounds {
						lease := locktest.MustLock(t, c.Mutex("x"))
						time.Sleep(time.Millisecond)
						locktest.MustUnlock(t, lease)
					}
				})
			}
			wg.Wait()
			ran := 0
			for _, s := range servers {
				ran += s.Ran()
			}
			if per := float64(ran) / float64(rounds*contenders); per > 16 {
				t.Errorf("%d contenders: %.1f scripts a handoff, want at most 16", contenders, per)
			}
		})
	}
}
