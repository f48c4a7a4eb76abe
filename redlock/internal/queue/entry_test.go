package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestALongQueueRefreshesSeldom(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
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
		// An entry so far back is refreshed every 30 s, and the waiter looks when the holder's key
		// would expire without a renewal; each time is a handful of commands. Every 600 ms it would
		// be some thousands.
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

// A waiter that joins a long queue does not know how far back it is. It must come again before its
// entry ends, not only when a waiter that far back has to.
func TestALongQueueThatStandsStillLosesNobody(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		var clients []*redlock.Client
		// The clients after the 53rd refresh their entries before they end.
		for range locktest.Thorough(150, 60) {
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
					locktest.MustUnlock(t, l)
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

// A MultiLock keeps its entry at the free lock while it waits for the other. When another waiter
// gives up there, the first in the queue is called. It is the MultiLock, which ignores the call.
func TestAnEntryAtAFreeLockIsKeptWhileItsWaiterRefreshes(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		cs, _ := locktest.Fleet(t, 4, 3)
		b := locktest.MustLock(t, cs[0].Mutex("B"))
		m := locktest.Multi(t, cs[1].Mutex("A"), cs[1].Mutex("B"))
		done := make(chan struct{})
		go func() {
			defer close(done)
			l := locktest.MustLock(t, m)
			locktest.MustUnlock(t, l)
		}()
		time.Sleep(10 * time.Millisecond)
		if l, err := cs[3].Mutex("A").TryLock(t.Context()); !errors.Is(err, quorumlock.ErrHeld) {
			t.Fatalf("control: %v %v", l, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
		if _, err := cs[2].Mutex("A").Lock(ctx); err == nil {
			t.Fatal("control")
		}
		cancel()
		time.Sleep(548 * time.Millisecond)
		l, err := cs[3].Mutex("A").TryLock(t.Context())
		if err == nil {
			t.Errorf("TryLock passed a live waiter that came 560 ms earlier")
			locktest.MustUnlock(t, l)
		}
		locktest.MustUnlock(t, b)
		<-done
	})
}

// A holder may still have an entry at a node that refused it, since the request that removes it was
// lost. The release removes it: it would hold up those behind it.
func TestAnEntryThatCouldNotBeRemovedIsRemovedWithTheRelease(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		n, err := servers[2].Node()
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close() //nolint:errcheck // a test's node
		if _, err := n.Acquire(t.Context(), "x", "other:1", time.Minute, 1); err != nil {
			t.Fatal(err)
		}
		servers[2].Before(func(r embedded.Run) {
			if r.Script == "leave" {
				servers[2].Kill()
			}
		})
		lease := locktest.Lock(t, c.Mutex("x"))
		servers[2].Before(nil)
		servers[2].Restart(true)
		if !servers[2].Redis.Exists(wire.QueueKey("x")) {
			t.Fatal("control: the entry was removed")
		}
		locktest.Unlock(t, lease)
		if servers[2].Redis.Exists(wire.QueueKey("x")) {
			t.Error("the entry is still there")
		}
		servers[2].Redis.Del("x")
		locktest.Nothing(t, servers)
	})
}
