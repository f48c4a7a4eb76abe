package redlock_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/embedded"
	"github.com/quorumlock/quorumlock/internal/locktest"
)

// "No more than one goroutine a node in flight for an acquisition, and none after it."
func TestAcquisitionTakesOneGoroutineANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := start(t, 5)
		warm(t, c)
		check := func(want int, when string) {
			t.Helper()
			synctest.Wait()
			if got := locktest.Goroutines(); len(got) > want {
				t.Errorf("%d goroutines %s, want %d at most:\n%s", len(got), when, want, strings.Join(got, "\n\n"))
			}
		}
		each(servers, func(s *embedded.Server) { s.Delay(10 * time.Millisecond) })
		for range 3 {
			got := make(chan *quorumlock.Lease)
			go func() {
				l, err := c.Mutex("x").Lock(t.Context())
				if err != nil {
					t.Error("Lock:", err)
				}
				got <- l
			}()
			check(5, "while acquiring")
			lease := <-got
			check(0, "after it")
			done := make(chan error)
			go func() { done <- lease.Unlock(t.Context()) }()
			check(5, "while releasing")
			if err := <-done; err != nil {
				t.Error("Unlock:", err)
			}
			check(0, "after it")
		}
	})
}

// A node is asked to renew five hundred leases at a time. One that is unlocked while it is busy with the first of them is not
// renewed with the rest.
func TestNothingIsRenewedAfterUnlockHoweverManyAreRenewedBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := start(t, 1)
		leases := make([]*quorumlock.Lease, 600)
		for i := range leases {
			leases[i] = locktest.Lock(t, c.Mutex(fmt.Sprint(i)))
		}
		if err := leases[599].Extend(t.Context()); err != nil { // the node knows the script
			t.Fatal(err)
		}
		var mu sync.Mutex
		var renewed []string
		servers[0].Before(func(r embedded.Run) {
			if r.Script != "renew" {
				return
			}
			mu.Lock()
			renewed = append(renewed, r.Keys[0])
			first := len(renewed) == 1
			mu.Unlock()
			if first { // until as many as allowed are on their way, and the others wait
				time.Sleep(time.Millisecond)
			}
			for _, l := range leases[:300] { // the last in the heap are those
				if first {
					mustUnlock(t, l)
				}
			}
		})
		time.Sleep(quorumlock.DefaultTTL / 2)
		mu.Lock()
		defer mu.Unlock()
		if len(renewed) < 500 || len(renewed) == len(leases) {
			t.Errorf("%d of %d were renewed", len(renewed), len(leases))
		}
		for _, name := range renewed[min(500, len(renewed)):] { // the others were on their way with the first
			if i, _ := strconv.Atoi(name); i < 300 {
				t.Errorf("%s was renewed after Unlock had returned", name)
			}
		}
		for _, l := range leases[300:] {
			locktest.Unlock(t, l)
		}
	})
}
