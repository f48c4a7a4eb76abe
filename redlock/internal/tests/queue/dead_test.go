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
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// crowd is waiters of one lock, each a client of its own, that are cut off or give up together.
// They share their nodes, so that hundreds of them cost few connections.
type crowd struct {
	paths   []*embedded.Server
	nodes   []*node.Node
	clients []*redlock.Client
	ctx     context.Context
	cancel  context.CancelFunc
	waiting sync.WaitGroup
}

// come has n more wait for the lock, one after the other. They never get it, or the test fails.
func (c *crowd) come(t *testing.T, n int, name string) {
	t.Helper()
	for range n {
		client, err := redlock.New(c.nodes)
		testkit.Must(t, err, "New")
		c.clients = append(c.clients, client)
		c.waiting.Go(func() {
			if lease, err := client.Mutex(name).Lock(c.ctx); err == nil {
				t.Errorf("one of the crowd has got token %d", lease.Token())
			}
		})
		time.Sleep(time.Millisecond)
	}
}

// die cuts all of them off. From here on they reach no node.
func (c *crowd) die() { testkit.Each(c.paths, (*embedded.Server).Kill) }

// giveUp cancels their calls and waits until they have returned.
func (c *crowd) giveUp() {
	c.cancel()
	c.waiting.Wait()
}

// crowdAt returns an empty crowd, which leaves at the end of the test at the latest.
func crowdAt(t *testing.T, servers []*embedded.Server) *crowd {
	t.Helper()
	c := &crowd{}
	c.paths, c.nodes = testkit.RoomyPaths(t, servers)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	t.Cleanup(func() {
		c.giveUp()
		for _, client := range c.clients {
			_ = client.Close()
		}
	})
	return c
}

// expiry is when the lock is free at a quorum of the servers, if nobody renews it.
func expiry(t *testing.T, servers []*embedded.Server, name string) time.Time {
	t.Helper()
	var left []time.Duration
	for _, s := range servers {
		left = append(left, s.Redis.TTL(name))
	}
	slices.Sort(left)
	if left[len(left)-1] == 0 {
		t.Fatal("control: nobody holds the lock")
	}
	return time.Now().Add(left[len(left)/2])
}

// far is the number of waiters before those that seldom refresh their entries: once in 4 s. These
// entries last for 12 s.
const far = 100

// shortLived is a holder's TTL, short compared with the time for which an entry far back is kept.
const shortLived = 3 * time.Second

// mortal returns a client with a short TTL, and a function that cuts it off.
func mortal(t *testing.T, servers []*embedded.Server) (c *redlock.Client, die func()) {
	t.Helper()
	c, paths := testkit.Another(t, servers, quorumlock.WithTTL(shortLived))
	return c, func() { testkit.Kill(paths...) }
}

// almostFree lets the holder of x die, and returns just before the lock is free: as late as others
// can die or give up.
func almostFree(t *testing.T, servers []*embedded.Server, die func()) (free time.Time) {
	t.Helper()
	die()
	free = expiry(t, servers, "x")
	time.Sleep(time.Until(free) - 50*time.Millisecond)
	return free
}

// servedAfter fails the test if a lock that became free by expiry was granted too late.
func servedAfter(t *testing.T, free time.Time) {
	t.Helper()
	late := time.Since(free)
	t.Logf("granted %v after the lock was free", late)
	if late < 0 || late > 2*time.Second {
		t.Errorf("granted %v after the lock was free, want within 2 s", late)
	}
}

// The holder dies, and so do waiters. Others give up just before the lock is free. The first living
// waiter is served soon: behind dead ones with entries that last long, since they were once far
// back; at any moment between two of its own rare refreshes; and before one that comes later.
func TestALockThatExpiresIsPassedOnToTheFirstLivingWaiter(t *testing.T) {
	type queue struct {
		name string
		// front waiters give up; of the dead, before are queued before the living one, and behind
		// after it.
		front, before, behind int
		dies                  time.Duration // when the holder dies, after all have come
		later                 bool          // one more comes when the lock is almost free
	}
	const soon = 5 * time.Second
	few := []queue{
		{"five dead", 0, 5, 0, soon, false},
		{"five dead around the living, once far back", far, 3, 2, soon, false},
		{"five dead, once far back, and a later one", far, 5, 0, soon, true},
		{"20 gave up", 20, 0, 0, 3 * time.Second, false},
		{"all gave up before one far back", far, 0, 0, soon, false},
	}
	for _, tt := range testkit.Thorough(append(few, []queue{
		{"200 dead around the living", 0, 100, 100, soon, false},
		{"one dead, once far back", far, 1, 0, soon, false},
		{"30 dead, once far back", far, 30, 0, soon, false},
		{"200 dead around the living, once far back", far, 100, 100, soon, false},
		{"nobody dead, and a later one", far, 0, 0, soon, true},
		{"30 dead, once far back, and a later one", far, 30, 0, soon, true},
		{"all gave up before one far back, later", far, 0, 0, 6 * time.Second, false},
		{"all gave up before one very far back", 2 * far, 0, 0, soon, false},
		{"all gave up before one very far back, later", 2 * far, 0, 0, 6 * time.Second, false},
	}...), few) {
		testkit.Run(t, tt.name, func(t *testing.T) {
			servers, _ := testkit.Nodes(t, 3)
			holder, die := mortal(t, servers)
			living, _ := testkit.Another(t, servers)
			later, _ := testkit.Another(t, servers)
			testkit.Lock(t, holder.Mutex("x"))
			testkit.Warm(t, living)
			testkit.Warm(t, later)
			front, dying := crowdAt(t, servers), crowdAt(t, servers)
			front.come(t, tt.front, "x")
			dying.come(t, tt.before, "x")
			first := testkit.Waiter(t, living.Mutex("x"))
			dying.come(t, tt.behind, "x")
			time.Sleep(tt.dies)
			free := almostFree(t, servers, die)
			dying.die()
			front.giveUp()
			var second <-chan *quorumlock.Lease
			if tt.later {
				second = testkit.Waiter(t, later.Mutex("x"))
			}
			select {
			case lease := <-first:
				servedAfter(t, free)
				testkit.MustUnlock(t, lease)
			case lease := <-second:
				t.Error("the one who came later was served first")
				testkit.MustUnlock(t, lease)
				second = first
			}
			if tt.later {
				testkit.MustUnlock(t, <-second)
			}
			if tt.before+tt.behind == 0 {
				testkit.NoLocks(t, servers)
			}
		})
	}
}

// Waiters that died while the lock was held for long do not keep the living far back, where entries
// are seldom refreshed.
func TestManyDeadInTheQueueDoNotDelayTheNextWhenTheHolderDies(t *testing.T) {
	testkit.Clean(t, 1, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		_, nodes := testkit.Paths(t, servers)
		n := nodes[0]
		const ttl = 31 * time.Second
		testkit.Must(t, testkit.Err(n.Acquire(t.Context(), "x", "holder:1", ttl, 1)), "Acquire")
		died := time.Now()
		for i := range 90 {
			p := wire.Entry{Waiter: quorumlock.Owner(fmt.Sprintf("dead:%d", i)), Ticket: int64(i), TTL: 2 * time.Second}
			testkit.Must(t, testkit.Send(t.Context(), n, wire.AcquireInTurn("x", "dead:0", ttl, 1, p))[0].Err, "AcquireInTurn")
		}
		lease := testkit.MustLock(t, c.Mutex("x"))
		if late := time.Since(died) - ttl; late > 100*time.Millisecond {
			t.Errorf("served %v after the holder's TTL", late)
		}
		testkit.MustUnlock(t, lease)
	})
}

func TestALongQueueRefreshesSeldom(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 1)
		holder := testkit.MustLock(t, c.Mutex("x"))
		_, nodes := testkit.Paths(t, servers)
		n := nodes[0]
		const before = 800
		for i := range before {
			p := wire.Entry{Waiter: quorumlock.Owner(fmt.Sprintf("far:%d", i)), Ticket: int64(i), TTL: time.Hour}
			testkit.Must(t, testkit.Send(t.Context(), n, wire.AcquireInTurn("x", "far:0", time.Second, 1, p))[0].Err, "AcquireInTurn")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := testkit.Go(func() error { return testkit.Err(c.Mutex("x").Lock(ctx)) })
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
		testkit.Must(t, err, "Inspect")
		testkit.Equal(t, state.Waiting, before+1, "callers in the queue")
		cancel()
		testkit.Is(t, <-ended, context.Canceled, "Lock")
		testkit.MustUnlock(t, holder)
	})
}

// A waiter that joins a long queue does not know how far back it is. It must come again before its
// entry ends, not only when a waiter that far back has to.
func TestALongQueueThatStandsStillLosesNobody(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		var clients []*redlock.Client
		// The clients after the 53rd refresh their entries before they end.
		for range testkit.Thorough(150, 60) {
			d, _ := testkit.Another(t, servers)
			clients = append(clients, d)
		}
		for _, subscribed := range []bool{false, true} { // from the first round on
			w := testkit.Lock(t, c.Mutex("x"))
			var mu sync.Mutex
			var order []int
			var running sync.WaitGroup
			for i, d := range clients {
				running.Go(func() {
					l := testkit.MustLock(t, d.Mutex("x"))
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
					testkit.MustUnlock(t, l)
				})
				time.Sleep(time.Millisecond)
			}
			time.Sleep(3 * time.Second)
			freed := time.Now()
			testkit.Unlock(t, w)
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
	testkit.Bubble(t, func(t *testing.T) {
		cs, _ := testkit.Fleet(t, 4, 3)
		b := testkit.MustLock(t, cs[0].Mutex("B"))
		m := testkit.Multi(t, cs[1].Mutex("A"), cs[1].Mutex("B"))
		got := testkit.Go(func() *quorumlock.Lease { return testkit.MustLock(t, m) })
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
			testkit.MustUnlock(t, l)
		}
		testkit.MustUnlock(t, b)
		testkit.MustUnlock(t, <-got)
	})
}

// A holder may still have an entry at a node that refused it, since the request that removes it was
// lost. The release removes it: it would hold up those behind it.
func TestAnEntryThatCouldNotBeRemovedIsRemovedWithTheRelease(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		_, nodes := testkit.Paths(t, servers)
		n := nodes[2]
		testkit.Must(t, testkit.Err(n.Acquire(t.Context(), "x", "other:1", time.Minute, 1)), "Acquire")
		servers[2].Before(func(r embedded.Run) {
			if r.Script == "leave" {
				servers[2].Kill()
			}
		})
		lease := testkit.Lock(t, c.Mutex("x"))
		servers[2].Before(nil)
		servers[2].Restart(true)
		if !servers[2].Redis.Exists(wire.QueueKey("x")) {
			t.Fatal("control: the entry was removed")
		}
		testkit.Unlock(t, lease)
		if servers[2].Redis.Exists(wire.QueueKey("x")) {
			t.Error("the entry is still there")
		}
		servers[2].Redis.Del("x")
	})
}
