package client_test

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/testkit"
)

// 10,000 leases of one client need no goroutine between renewals. At most 500 renewals are under
// way at a node, however many are due. All leases are kept.
func TestTenThousandLeasesAreRenewedAFewAtATimeWithoutGoroutines(t *testing.T) {
	// The collector counts the stacks of ended goroutines as alive until they are freed.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	synctest.Test(t, func(t *testing.T) {
		const leases = 10_000
		const ending = 100 // goroutines of timers that are about to end, or of the runtime
		nodes := yeses(5)
		c := newClient(t)
		before := runtime.NumGoroutine()
		held := make([]*quorumlock.Lease, leases)
		var wg sync.WaitGroup
		for i := range held {
			wg.Go(func() {
				lease, err := lockAt(t, c, fmt.Sprint("lease-", i), nodes).TryLock(t.Context())
				testkit.OK(t, err, "lease %d", i)
				held[i] = lease
			})
		}
		wg.Wait()
		for range 3 {
			synctest.Wait()
			if n := runtime.NumGoroutine() - before; n > ending {
				t.Errorf("%d goroutines more than with no lease:\n%v", n, testkit.Goroutines())
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
			testkit.Held(t, l)
		}
	})
}

// Leases that began at different times are renewed together: a write costs more than a renewal.
// Extend does not wait for others.
func TestRenewalsAreSentTogether(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const leases = 1000
		nodes := yeses(3)
		c := newClient(t)
		var last *quorumlock.Lease
		for i := range leases {
			last = testkit.TryLock(t, lockAt(t, c, fmt.Sprint("lease-", i), nodes))
		}
		time.Sleep(quorumlock.DefaultTTL)
		for _, n := range nodes {
			n.become(nil)
		}
		time.Sleep(quorumlock.DefaultTTL)
		for _, n := range nodes {
			if asked, sent, _, _ := n.counts(); asked < 2*leases || sent > 1100 { // 100 a second
				t.Errorf("%s was sent %d renewals in %d writes, want at least %d in at most 1100", n, asked, sent, 2*leases)
			}
		}
		for range 20 {
			began := time.Now()
			testkit.Must(t, last.Extend(t.Context()), "Extend")
			testkit.Took(t, began, 0, time.Millisecond, "Extend: more than a round trip")
			time.Sleep(777 * time.Microsecond)
		}
	})
}

// Renewals of leases with a long TTL may wait for 20 ms. They do not delay leases with a short TTL.
func TestARenewalDoesNotWaitForThoseThatMayWaitLonger(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		n, most := 0, time.Duration(0)
		lags := testkit.Observer(func(e quorumlock.Event) {
			if e.Kind == quorumlock.EventRenewed {
				mu.Lock()
				defer mu.Unlock()
				n, most = n+1, max(most, e.Lag)
			}
		})
		nodes, c := yeses(3), newClient(t)
		take := func(name string, ttl time.Duration, opts ...quorumlock.Option) {
			testkit.TryLock(t, lockAt(t, c, name, nodes, append(opts, quorumlock.WithTTL(ttl))...))
		}
		for i := range 1000 {
			take(fmt.Sprint("long-", i), 30*time.Second)
		}
		take("short", 1500*time.Millisecond, quorumlock.WithObserver(lags))
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if want := 2500 * time.Microsecond; n < 100 || most > want {
			t.Errorf("%d renewals were late by up to %v, want at most %v: a thousandth of the TTL and a round trip", n, most, want)
		}
	})
}

// Close ends while renewals wait for others, or for their turns. Nothing is sent after Close.
func TestCloseWhileRenewalsWaitForOthers(t *testing.T) {
	for late := range 12 { // ms
		testkit.Run(t, fmt.Sprint(late), func(t *testing.T) {
			const ttl = 9 * time.Second
			nodes, c := yeses(3), client.NewClient("test")
			lease := testkit.TryLock(t, lockAt(t, c, "x", nodes, quorumlock.WithTTL(ttl)))
			// The next renewal is due in a third of the TTL.
			testkit.Must(t, lease.Extend(t.Context()), "Extend")
			time.Sleep(ttl/3 - time.Millisecond + time.Duration(late)*time.Millisecond)
			began := time.Now()
			c.Close()
			testkit.Took(t, began, 0, 20*time.Millisecond, "Close, %d ms after a renewal was due", late-1)
			asked := nodes[0].asked + nodes[1].asked + nodes[2].asked
			time.Sleep(ttl)
			if n := nodes[0].asked + nodes[1].asked + nodes[2].asked; n != asked {
				t.Errorf("the nodes were asked %d times more after Close", n-asked)
			}
		})
	}
}

// Renewals for a frozen node do not pile up: each is dropped when the next one of its hold is due.
func TestRenewalsDoNotPileUpForAFrozenNode(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const leases = 2000
		c, nodes := newClient(t), yeses(3)
		var held []*quorumlock.Lease
		for i := range leases {
			held = append(held, testkit.TryLock(t, lockAt(t, c, fmt.Sprint("lease-", i), nodes, quorumlock.WithNodeTimeout(5*time.Second))))
		}
		nodes[0].freeze(true)
		time.Sleep(2 * time.Minute)
		nodes[0].freeze(false)
		nodes[0].become(nil)
		time.Sleep(quorumlock.DefaultTTL)
		// The renewals that were due, and three for each lease since then.
		if asked, _, _, _ := nodes[0].counts(); asked > 5*leases || asked < 2*leases {
			t.Errorf("a node that is back was sent %d renewals, want %d at most, and %d at least", asked, 5*leases, 2*leases)
		}
		for _, l := range held {
			testkit.Held(t, l)
		}
	})
}

// The leases of one client share a few timers, and an ended lease leaves none, even if its TTL is
// long.
func TestAnEndedLeaseLeavesNoAlarm(t *testing.T) {
	for name, tt := range map[string]struct {
		opts []quorumlock.Option
		most int // alarms
	}{
		"renewed":     {nil, 65},
		"not renewed": {[]quorumlock.Option{quorumlock.WithoutRenewal()}, 500},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			c := newClient(t)
			nodes := yeses(3)
			held := make([]*quorumlock.Lease, 500)
			for i := range held {
				lease, err := lockAt(t, c, fmt.Sprint("lease-", i), nodes, append(tt.opts, quorumlock.WithTTL(24*time.Hour))...).TryLock(t.Context())
				testkit.OK(t, err, "lease %d", i)
				held[i] = lease
			}
			time.Sleep(time.Minute) // the timers of the attempts come
			if n := c.Alarms(); n == 0 || n > tt.most {
				t.Errorf("%d alarms for %d leases", n, len(held))
			}
			for _, l := range held {
				testkit.OK(t, l.Unlock(t.Context()), "Unlock")
			}
			if n := c.Alarms(); n != 0 {
				t.Errorf("%d alarms are left", n)
			}
		})
	}
}
