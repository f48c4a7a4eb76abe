package redlock_test

import (
	"strings"
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
