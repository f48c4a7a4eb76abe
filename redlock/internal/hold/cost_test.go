package hold

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// An acquisition and a release take no goroutine of their own: the lanes of the nodes have theirs.
func TestAnAcquisitionTakesNoGoroutine(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		locktest.Warm(t, c)
		check := func(when string) {
			t.Helper()
			synctest.Wait()
			if got := locktest.BusyGoroutines(); len(got) != 0 {
				t.Errorf("%d goroutines %s:\n%s", len(got), when, strings.Join(got, "\n\n"))
			}
		}
		locktest.Each(servers, func(s *embedded.Server) { s.Delay(10 * time.Millisecond) })
		for range 3 {
			got := make(chan *quorumlock.Lease)
			go func() {
				l, err := c.Mutex("x").Lock(t.Context())
				if err != nil {
					t.Error("Lock:", err)
				}
				got <- l
			}()
			check("while acquiring")
			lease := <-got
			check("after it")
			done := make(chan error)
			go func() { done <- lease.Unlock(t.Context()) }()
			check("while releasing")
			if err := <-done; err != nil {
				t.Error("Unlock:", err)
			}
			check("after it")
		}
	})
}

// A node is asked to renew five hundred leases at a time. A lease that is unlocked while the node
// is busy with the first of them is not renewed with the rest.
func TestNothingIsRenewedAfterUnlockHoweverManyAreRenewedBeforeIt(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 1)
		leases := make([]*quorumlock.Lease, 600)
		for i := range leases {
			leases[i] = locktest.Lock(t, c.Mutex(fmt.Sprint(i)))
		}
		if err := leases[599].Extend(t.Context()); err != nil { // the node knows the script
			t.Fatal(err)
		}
		var mu sync.Mutex
		var renewed []string
		met := false
		// Unknown scripts come twice, and run once.
		servers[0].After(func(r embedded.Run) {
			if r.Script == "renew" {
				mu.Lock()
				defer mu.Unlock()
				renewed = append(renewed, r.Keys[0])
			}
		})
		servers[0].Before(func(r embedded.Run) {
			if r.Script != "renew" {
				return
			}
			mu.Lock()
			first := !met
			met = true
			mu.Unlock()
			if first { // until as many as allowed are on their way, and the others wait
				time.Sleep(time.Millisecond)
			}
			for _, l := range leases[:300] { // they are the last in the queue
				if first {
					locktest.MustUnlock(t, l)
				}
			}
		})
		var extends sync.WaitGroup
		// The watchdog does not renew so many at one time.
		for _, some := range [][]*quorumlock.Lease{leases[300:], leases[:300]} {
			for _, l := range some {
				extends.Go(func() { _ = l.Extend(t.Context()) }) // it may be unlocked
			}
			synctest.Wait() // they are queued in this order
		}
		extends.Wait()
		mu.Lock()
		n := len(renewed)
		mu.Unlock() // the watchdog renews while the rest are unlocked
		// Of the unlocked ones, 200 at most were on their way with the first.
		if n < 300 || n > 500 {
			t.Errorf("%d of %d were renewed", n, len(leases))
		}
		for _, l := range leases[300:] {
			locktest.Unlock(t, l)
		}
	})
}
