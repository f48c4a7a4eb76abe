package client_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/settings"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/testkit/wallclock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// crowd is the group of callers of one lock in one process. It records grants and failures.
type crowd struct {
	lock   *client.Lock
	mu     sync.Mutex
	got    []int
	leases map[int]*quorumlock.Lease
	failed map[int]error
}

func newCrowd(l *client.Lock) *crowd {
	return &crowd{lock: l, leases: make(map[int]*quorumlock.Lease), failed: make(map[int]error)}
}

// come starts calls of Lock, one after another.
func (c *crowd) come(ctx context.Context, callers ...int) {
	for _, i := range callers {
		go func() {
			lease, err := c.lock.Lock(ctx)
			c.mu.Lock()
			defer c.mu.Unlock()
			if err != nil {
				c.failed[i] = err
				return
			}
			c.got, c.leases[i] = append(c.got, i), lease
		}()
		settle(time.Millisecond)
	}
}

// settle lets so much time pass, and all that happens then.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// waiters returns the number of waiters in the queue of a node.
func waiters(s *embedded.Server) int {
	queue, _ := s.Redis.ZMembers(wire.QueueKey("x")) // an error is no queue
	return len(queue)
}

// queued fails the test unless the queue of every node has that many waiters.
func (w *world) queued(t *testing.T, want int) {
	t.Helper()
	for _, s := range w.servers {
		testkit.Equal(t, waiters(s), want, "waiters at %s", s.Name)
	}
}

// served fails the test unless the callers get the lock in this order. Each unlocks it.
func (c *crowd) served(t *testing.T, callers ...int) {
	t.Helper()
	for n, i := range callers {
		settle(200 * time.Millisecond)
		if !slices.Equal(c.got, callers[:n+1]) {
			t.Fatalf("they were granted the lock in the order %v, want %v", c.got, callers)
		}
		testkit.Unlock(t, c.leases[i])
	}
}

// standFor fails the test unless the waiters at a node stand for that many callers.
func (w *world) standFor(t *testing.T, callers int) {
	t.Helper()
	in, err := w.nodes[0].Inspect(t.Context(), "x")
	testkit.Must(t, err, "Inspect")
	n := 0
	for _, entry := range in.Queue {
		n += entry.Callers
	}
	testkit.Equal(t, n, callers, "callers that the queue stands for")
}

// The first three callers of a local queue are queued at the nodes, in the order of their calls.
// Another follows when one of these gets the lock or leaves.
func TestTheFirstCallersOfALocalQueueGoToTheNodes(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		c := newCrowd(w.lock(t, "x"))
		holder := testkit.Lock(t, c.lock)
		ctx, cancel := context.WithCancel(t.Context())
		c.come(t.Context(), 1)
		c.come(ctx, 2)
		c.come(t.Context(), 3, 4)
		c.come(ctx, 5, 6, 7, 8)
		c.come(t.Context(), 9)
		settle(time.Second) // for the entries to be refreshed
		w.queued(t, 3)
		w.standFor(t, 9)
		cancel()
		c.come(t.Context(), 10, 11)
		settle(time.Second)
		w.queued(t, 3)
		w.standFor(t, 6)
		for i, err := range c.failed {
			testkit.Is(t, err, context.Canceled, "caller %d", i)
		}
		testkit.Unlock(t, holder)
		want := []int{1, 3, 4, 9, 10, 11}
		for n, i := range want {
			settle(20 * time.Millisecond) // the simulations allow as much for "the next waiter is told"
			if !slices.Equal(c.got, want[:n+1]) || c.leases[i] == nil {
				t.Fatalf("they were granted the lock in the order %v, want %v", c.got, want)
			}
			w.queued(t, min(3, len(want)-n-1))
			testkit.Unlock(t, c.leases[i])
		}
		testkit.Equal(t, len(c.failed), 5, "calls that have failed")
		testkit.Nothing(t, w.servers)
		testkit.Equal(t, w.client.LocalQueues(), 0, "local queues of the client")
	})
}

// A node may change the place of a client's first caller. None follows until nodes have its ticket.
func TestTheNextCallerWaitsUntilTheNodesKnowThePlaceOfTheFirst(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"the clock is right": 0, "the clock is wrong": time.Hour} {
		testkit.Run(t, name, func(t *testing.T) {
			const latency = 20 * time.Millisecond // one way
			w := newWorld(t)
			w.client.Simulate(func() time.Time { return wallclock.Now(ahead) }, nil, nil)
			c := newCrowd(w.lock(t, "x"))
			for _, s := range w.servers {
				s.Delay(latency)
			}
			// From now on, the lanes know that the nodes are far, and do not wait for replies.
			for range 5 {
				testkit.Unlock(t, testkit.Lock(t, c.lock))
			}
			holder := testkit.Lock(t, c.lock)
			time.Sleep(time.Second)
			c.come(t.Context(), 1, 2, 3, 4)
			var first, next time.Time // when a node first had one waiter, and when it had more
			for began := time.Now(); time.Since(began) < time.Second; time.Sleep(time.Millisecond) {
				for _, s := range w.servers {
					if first.IsZero() && waiters(s) > 0 {
						first = time.Now()
					}
					if next.IsZero() && waiters(s) > 1 {
						next = time.Now()
					}
				}
			}
			w.queued(t, 3)
			if d := next.Sub(first); d < latency {
				t.Errorf("the second is queued %v after the first: no node can have told of the first", d)
			}
			testkit.Unlock(t, holder)
			c.served(t, 1, 2, 3, 4)
		})
	}
}

// A caller with an owner that has the lock enters the hold, past all callers in the local queue.
// The hold begins just before the caller queues, or later.
func TestACallerEntersTheHoldOfItsOwnerPastTheLocalQueue(t *testing.T) {
	for name, early := range map[string]bool{"the hold begins first": true, "the caller comes first": false} {
		testkit.Run(t, name, func(t *testing.T) {
			w := newWorld(t)
			owner := quorumlock.WithOwner(quorumlock.NewOwner())
			c, own := newCrowd(w.lock(t, "x")), newCrowd(w.lock(t, "x", owner))
			holder := testkit.Lock(t, c.lock)
			own.come(t.Context(), 1)
			c.come(t.Context(), 2, 3, 4, 5)
			unlock := func() {
				testkit.Unlock(t, holder)
				time.Sleep(time.Millisecond)
			}
			if early {
				own.come(&looking{t.Context(), sync.OnceFunc(unlock)}, 6)
			} else {
				own.come(t.Context(), 6)
				unlock()
			}
			settle(time.Millisecond)
			if !slices.Equal(own.got, []int{1, 6}) || len(c.got) > 0 {
				t.Fatalf("its owner's callers %v and the others %v have the lock, want 1 and 6", own.got, c.got)
			}
			testkit.Unlock(t, own.leases[1])
			testkit.Unlock(t, own.leases[6])
			c.served(t, 2, 3, 4, 5)
		})
	}
}

// looking is a context that calls do when a caller looks for a hold in it, before it queues.
type looking struct {
	context.Context
	do func()
}

func (l *looking) Value(key any) any {
	if key == (settings.HeldKey{}) {
		l.do()
	}
	return l.Context.Value(key)
}

// Shutdown ends the calls that wait in the local queue.
func TestShutdownEndsTheCallsInTheLocalQueue(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		c := newCrowd(w.lock(t, "x"))
		holder := testkit.Lock(t, c.lock)
		c.come(t.Context(), 1, 2, 3, 4, 5)
		ctx := testkit.Within(t, 10*time.Millisecond)
		w.asksNoMore(t)
		testkit.Is(t, w.client.Shutdown(ctx), context.DeadlineExceeded, "Shutdown beside a holder")
		synctest.Wait()
		for i := 1; i <= 5; i++ {
			testkit.Is(t, c.failed[i], quorumlock.ErrClosed, "caller %d", i)
		}
		testkit.Unlock(t, holder)
	})
}

// Events tell an Observer which calls waited in the local queue before they asked a node.
func TestAnObserverLearnsOfTheLocalQueue(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		var first []quorumlock.StepKind // of each call
		s := testkit.Observer(func(e quorumlock.Event) {
			if e.Kind == quorumlock.EventAcquired {
				first = append(first, e.Steps[0].Kind)
			}
		})
		c := newCrowd(w.lock(t, "x", quorumlock.WithObserver(s)))
		holder := testkit.Lock(t, c.lock)
		c.come(t.Context(), 1, 2, 3, 4, 5)
		testkit.Unlock(t, holder)
		c.served(t, 1, 2, 3, 4, 5)
		queued, asks := quorumlock.StepQueued, quorumlock.StepAttempt
		if want := []quorumlock.StepKind{asks, asks, asks, asks, queued, queued}; !slices.Equal(first, want) {
			t.Errorf("the first steps are %v, want %v", first, want)
		}
	})
}
