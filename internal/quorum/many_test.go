package quorum_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// yes is a node that confirms every request after a millisecond. Its tests are about the number and
// the order of requests, at a load beyond an embedded server.
type yes struct {
	name string

	mu     sync.Mutex
	flight int // renewals under way
	most   int // at one time
	asked  int
	sent   int // writes with renewals
}

func (n *yes) String() string { return n.name }

func yeses(n int) (nodes []*yes) {
	for i := range n {
		nodes = append(nodes, &yes{name: fmt.Sprint("node-", i+1)})
	}
	return nodes
}

func (n *yes) Do(_ context.Context, lane quorum.Lane, _ time.Time, calls []wire.Call, answer func([]wire.Reply)) {
	replies := make([]wire.Reply, len(calls))
	for i, c := range calls {
		switch c.Script {
		case wire.Acquire("", "", 0, 0, 0).Script:
			replies[i].Value = int64(1)
		case wire.Release("", "", 0).Script:
			replies[i].Value = int64(0)
		default:
			replies[i].Value = int64(1)
		}
	}
	change := func(by int) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if lane == quorum.Background {
			n.flight += by
			n.most = max(n.most, n.flight)
			n.asked += max(by, 0)
			n.sent += min(max(by, 0), 1)
		}
	}
	change(len(calls))
	time.AfterFunc(time.Millisecond, func() {
		change(-len(calls))
		answer(replies)
	})
}

func (n *yes) Listen(string, func(string)) (stop func()) { return func() {} }

// 10,000 leases of one client need no goroutine between renewals. At most 500 renewals are under
// way at a node, however many are due. All leases are kept.
func TestTenThousandLeasesAreRenewedAFewAtATimeWithoutGoroutines(t *testing.T) {
	// The collector counts the stacks of ended goroutines as alive until they are freed.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	synctest.Test(t, func(t *testing.T) {
		const leases = 10_000
		const ending = 100 // goroutines of timers that are about to end, or of the runtime
		nodes := yeses(5)
		c := quorum.NewClient("test")
		defer c.Close()
		before := runtime.NumGoroutine()
		held := make([]*quorumlock.Lease, leases)
		var wg sync.WaitGroup
		for i := range held {
			wg.Go(func() {
				lease, err := lockAt(t, c, fmt.Sprint("lease-", i), nodes).TryLock(t.Context())
				if err != nil {
					t.Error(err)
				}
				held[i] = lease
			})
		}
		wg.Wait()
		for range 3 {
			synctest.Wait()
			if n := runtime.NumGoroutine() - before; n > ending {
				t.Errorf("%d goroutines more than with no lease:\n%v", n, locktest.Goroutines())
			}
			time.Sleep(quorumlock.DefaultTTL / 2)
		}
		for _, n := range nodes {
			n.mu.Lock()
			if n.most > 500 || n.asked < 3*leases {
				t.Errorf("%s was sent %d renewals, %d at a time, want three a lease, and at most 500", n.name, n.asked, n.most)
			}
			n.mu.Unlock()
		}
		for _, l := range held {
			locktest.Held(t, l)
		}
	})
}

// Leases that began at different times are renewed together: a write costs more than a renewal.
// Extend does not wait for others.
func TestRenewalsAreSentTogether(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		const leases = 1000
		nodes := yeses(3)
		c := quorum.NewClient("test")
		defer c.Close()
		var last *quorumlock.Lease
		for i := range leases {
			var err error
			if last, err = lockAt(t, c, fmt.Sprint("lease-", i), nodes).TryLock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(quorumlock.DefaultTTL)
		for _, n := range nodes {
			n.mu.Lock()
			n.asked, n.sent = 0, 0
			n.mu.Unlock()
		}
		time.Sleep(quorumlock.DefaultTTL)
		for _, n := range nodes {
			n.mu.Lock()
			if n.asked < 2*leases || n.sent > 1100 { // 100 a second
				t.Errorf("%s was sent %d renewals in %d writes, want at least %d in at most 1100", n.name, n.asked, n.sent, 2*leases)
			}
			n.mu.Unlock()
		}
		for range 20 {
			began := time.Now()
			if err := last.Extend(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > time.Millisecond {
				t.Errorf("Extend took %v, want a round trip of 1ms", took)
			}
			time.Sleep(777 * time.Microsecond)
		}
	})
}

// lags records the greatest lag of a lock's renewals.
type lags struct {
	of   string
	mu   sync.Mutex
	most time.Duration
	n    int
}

type lockName struct{}

func (l *lags) Begin(ctx context.Context, lock string) context.Context {
	return context.WithValue(ctx, lockName{}, lock)
}

func (l *lags) Observe(ctx context.Context, e quorumlock.Event) {
	if e.Kind == quorumlock.Renewed && ctx.Value(lockName{}) == l.of {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.most, l.n = max(l.most, e.Lag), l.n+1
	}
}

// Renewals of leases with a long TTL may wait for 20 ms. They do not delay leases with a short TTL.
func TestARenewalDoesNotWaitForThoseThatMayWaitLonger(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		l := &lags{of: "short"}
		nodes := yeses(3)
		c := quorum.NewClient("test")
		defer c.Close()
		take := func(name string, ttl time.Duration) {
			if _, err := lockAt(t, c, name, nodes, quorumlock.WithTTL(ttl), quorumlock.WithObserver(l)).TryLock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 1000 {
			take(fmt.Sprint("long-", i), 30*time.Second)
		}
		take("short", 1500*time.Millisecond)
		time.Sleep(time.Minute)
		l.mu.Lock()
		defer l.mu.Unlock()
		if want := 2500 * time.Microsecond; l.n < 100 || l.most > want {
			t.Errorf("%d renewals were late by up to %v, want at most %v: a thousandth of the TTL and a round trip", l.n, l.most, want)
		}
	})
}

// Close ends while renewals wait for others, or for their turns. Nothing is sent after Close.
func TestCloseWhileRenewalsWaitForOthers(t *testing.T) {
	for late := range 12 { // ms
		locktest.Run(t, fmt.Sprint(late), func(t *testing.T) {
			const ttl = 9 * time.Second
			nodes, c := yeses(3), quorum.NewClient("test")
			lease, err := lockAt(t, c, "x", nodes, quorumlock.WithTTL(ttl)).TryLock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			// The next renewal is due in a third of the TTL.
			if err := lease.Extend(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(ttl/3 - time.Millisecond + time.Duration(late)*time.Millisecond)
			began := time.Now()
			c.Close()
			if took := time.Since(began); took > 20*time.Millisecond {
				t.Errorf("%d ms after a renewal was due, Close took %v", late-1, took)
			}
			asked := nodes[0].asked + nodes[1].asked + nodes[2].asked
			time.Sleep(ttl)
			if n := nodes[0].asked + nodes[1].asked + nodes[2].asked; n != asked {
				t.Errorf("the nodes were asked %d times more after Close", n-asked)
			}
		})
	}
}

// frozen is a node that answers nothing for a while: calls fail at their deadlines.
type frozen struct {
	yes
	still atomic.Bool
}

func (n *frozen) Do(ctx context.Context, lane quorum.Lane, deadline time.Time, calls []wire.Call, answer func([]wire.Reply)) {
	if !n.still.Load() {
		n.yes.Do(ctx, lane, deadline, calls, answer)
		return
	}
	replies := make([]wire.Reply, len(calls))
	for i := range replies {
		replies[i].Err = context.DeadlineExceeded
	}
	time.AfterFunc(time.Until(deadline), func() { answer(replies) })
}

// Renewals for a frozen node do not pile up: each is dropped when the next one of its hold is due.
func TestRenewalsDoNotPileUpForAFrozenNode(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		const leases = 2000
		c := quorum.NewClient("test")
		defer c.Close()
		n := &frozen{yes: yes{name: "frozen"}}
		var held []*quorumlock.Lease
		for i := range leases {
			l := lockAt(t, c, fmt.Sprint("lease-", i), []quorum.Node{n, &yes{name: "2"}, &yes{name: "3"}}, quorumlock.WithNodeTimeout(5*time.Second))
			lease, err := l.TryLock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, lease)
		}
		n.still.Store(true)
		time.Sleep(2 * time.Minute)
		n.still.Store(false)
		n.mu.Lock()
		n.asked = 0
		n.mu.Unlock()
		time.Sleep(quorumlock.DefaultTTL)
		n.mu.Lock()
		// The renewals that were due, and three for each lease since then.
		if most := 5 * leases; n.asked > most {
			t.Errorf("a node that is back was sent %d renewals of %d leases, want %d at most", n.asked, leases, most)
		}
		if n.asked < 2*leases {
			t.Errorf("it was sent %d renewals", n.asked)
		}
		n.mu.Unlock()
		for _, l := range held {
			locktest.Held(t, l)
		}
	})
}
