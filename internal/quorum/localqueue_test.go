package quorum_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// crowd is the callers of one lock in one process. It notes who has got the lock, and who has failed.
type crowd struct {
	lock   *quorum.Lock
	got    []int
	leases map[int]*quorumlock.Lease
	failed map[int]error
}

func newCrowd(l *quorum.Lock) *crowd {
	return &crowd{lock: l, leases: make(map[int]*quorumlock.Lease), failed: make(map[int]error)}
}

// come has callers call Lock, one after the other.
func (c *crowd) come(ctx context.Context, callers ...int) {
	for _, i := range callers {
		go func() {
			lease, err := c.lock.Lock(ctx)
			if err != nil {
				c.failed[i] = err
				return
			}
			c.got, c.leases[i] = append(c.got, i), lease
		}()
		time.Sleep(time.Millisecond)
	}
}

// queued fails unless so many wait in the queue of every node.
func (w *world) queued(t *testing.T, waiters int) {
	t.Helper()
	for _, s := range w.servers {
		queue, _ := s.Redis.SortedSet(wire.QueueKey("x")) // an error is no queue
		if len(queue) != waiters {
			t.Errorf("%d wait at %s, want %d", len(queue), s.Name, waiters)
		}
	}
}

// standFor fails unless the waiters at a node stand for so many callers.
func (w *world) standFor(t *testing.T, callers int) {
	t.Helper()
	in, err := w.nodes[0].Inspect(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, entry := range in.Queue {
		n += entry.Callers
	}
	if n != callers {
		t.Errorf("the queue stands for %d callers, want %d", n, callers)
	}
}

// Three callers of a local queue are queued at the nodes, in the order of their calls, and the others follow when one of
// these has got the lock or has gone.
func TestTheFirstCallersOfALocalQueueGoToTheNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := newCrowd(w.lock(t, "x"))
		holder := locktest.Lock(t, c.lock)
		ctx, cancel := context.WithCancel(t.Context())
		c.come(t.Context(), 1)
		c.come(ctx, 2, 3, 4, 5, 6)
		c.come(t.Context(), 7, 8, 9, 10, 11)
		time.Sleep(time.Second) // for the entries to be refreshed
		w.queued(t, 3)
		w.standFor(t, 11)
		cancel()
		time.Sleep(time.Second)
		w.queued(t, 3)
		w.standFor(t, 6)
		for i, err := range c.failed {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("caller %d: %v", i, err)
			}
		}
		locktest.Unlock(t, holder)
		want := []int{1, 7, 8, 9, 10, 11}
		for n, i := range want {
			time.Sleep(time.Millisecond)
			if !slices.Equal(c.got, want[:n+1]) || c.leases[i] == nil {
				t.Fatalf("they were granted the lock in the order %v, want %v", c.got, want)
			}
			w.queued(t, min(3, len(want)-n-1))
			locktest.Unlock(t, c.leases[i])
		}
		if n := len(c.failed); n != 5 {
			t.Errorf("%d have failed, want 5", n)
		}
		locktest.Nothing(t, w.servers)
		if n := w.client.LocalQueues(); n != 0 {
			t.Errorf("the client has %d local queues, want none", n)
		}
	})
}
