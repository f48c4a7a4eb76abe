package client_test

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// clustered is a node that may have shard channels, and records the channels with listeners.
type clustered struct {
	*hooked
	sharded atomic.Bool

	mu    sync.Mutex
	heard map[string]func(string)
}

func (n *clustered) Sharded() bool { return n.sharded.Load() }

func (n *clustered) Listen(channel string, heard func(string)) (stop func()) {
	end := n.hooked.Listen(channel, heard)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.heard == nil {
		n.heard = make(map[string]func(string))
	}
	n.heard[channel] = heard
	return func() {
		n.mu.Lock()
		delete(n.heard, channel)
		n.mu.Unlock()
		end()
	}
}

// channels returns the channels with listeners.
func (n *clustered) channels() map[string]func(string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.heard)
}

// A cluster that is unreachable at a call's first attempt turns out to have shard channels later.
// It calls the waiter there, on a channel of the lock.
func TestAWaiterListensOnTheShardChannelsOfAClusterThatWasOutOfReach(t *testing.T) {
	for name, known := range map[string]func(w *world, n *clustered){
		"the next attempt reaches it": func(w *world, _ *clustered) {
			w.servers[0].Restart(true)
			time.Sleep(time.Second)
		},
		"somebody else has reached it, and its listeners have moved": func(_ *world, n *clustered) {
			for _, heard := range n.channels() {
				heard("")
			}
			synctest.Wait()
		},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			w := newWorld(t)
			n := &clustered{hooked: w.nodes[0]}
			lock := func(c *client.Client) *client.Lock {
				return lockAt(t, c, "x", []client.Node{n, w.nodes[1], w.nodes[2]})
			}
			lease := testkit.Lock(t, lock(newClient(t)))

			w.servers[0].Kill()
			got := testkit.Call(t, t.Context(), lock(w.client).Lock)
			before, after := wire.WakeChannel(w.client.ID()), wire.ShardWakeChannel("x", w.client.ID())
			if all := n.channels(); len(all) != 1 || all[before] == nil {
				t.Errorf("control: it listens on %d channels, want its wake channel", len(all))
			}
			n.sharded.Store(true)
			known(w, n)
			if n.channels()[after] == nil {
				t.Error("it does not listen on the shard channel of the lock")
			}

			testkit.Unlock(t, lease)
			testkit.Unlock(t, <-got)
			time.Sleep(11 * time.Second) // a subscription stays for ten
			if all := n.channels(); len(all) > 0 {
				t.Errorf("it still listens on %d channels", len(all))
			}
		})
	}
}

// With shard channels each lock has a channel. Messages that may have been missed there concern no
// waiter of another lock.
func TestASubscriptionWakesOnlyTheWaitersOfItsChannel(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		var nodes []client.Node
		for _, n := range w.nodes {
			c := &clustered{hooked: n}
			c.sharded.Store(true)
			nodes = append(nodes, c)
		}
		const waiting = 50
		lock := func(c *client.Client, i int) *client.Lock { return lockAt(t, c, fmt.Sprint("x", i), nodes) }
		holder := newClient(t)
		var leases []*quorumlock.Lease
		for i := range waiting + 1 {
			leases = append(leases, testkit.Lock(t, lock(holder, i)))
		}
		var waiters sync.WaitGroup
		waiter := 0
		wait := func() {
			l := lock(w.client, waiter)
			waiter++
			waiters.Go(func() { testkit.MustUnlock(t, testkit.MustLock(t, l)) })
		}
		// acquires returns the acquires of during and the 50 ms after it: less than a refresh.
		acquires := func(during func()) int {
			before := testkit.Ran(w.servers, "acquire")
			during()
			time.Sleep(50 * time.Millisecond)
			return testkit.Ran(w.servers, "acquire") - before
		}
		for range waiting {
			wait()
		}
		time.Sleep(100 * time.Millisecond)
		// Its first attempt, and those after a node has confirmed the subscription.
		if n := acquires(wait); n < 6 || n > 12 {
			t.Errorf("a new waiter beside %d others makes %d acquires, want 6 to 12", waiting, n)
		}
		missed := nodes[0].(*clustered).channels()[wire.ShardWakeChannel("x7", w.client.ID())]
		testkit.Equal(t, acquires(func() { missed("") }), 3, "acquires after messages missed on one channel")
		for _, l := range leases {
			testkit.Unlock(t, l)
		}
		waiters.Wait()
	})
}
