package queue

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/locktest"
)

// The first waiter's entry is missing at one node, and another node is silent, so each of two
// waiters is handed a part. However long they have waited before, they must not wait for the silent
// node.
func TestALongWaitMakesNoHandoffLate(t *testing.T) {
	for _, waits := range []time.Duration{0, 8 * time.Second} {
		locktest.Run(t, waits.String(), func(t *testing.T) {
			first, servers := locktest.Client(t, 3)
			one, paths := locktest.Another(t, servers)
			two, _ := locktest.Another(t, servers)
			holder := locktest.MustLock(t, first.Mutex("x"))
			got := locktest.Waiter(t, one.Mutex("x"))
			time.Sleep(10 * time.Millisecond)
			next := locktest.Waiter(t, two.Mutex("x"))
			time.Sleep(waits)
			paths[1].Lose()
			time.Sleep(2500 * time.Millisecond) // the entry there ends
			servers[2].Stall()
			paths[1].Resume()
			start := time.Now()
			locktest.MustUnlock(t, holder)
			for range 2 {
				select {
				case l := <-got:
					locktest.MustUnlock(t, l)
				case l := <-next:
					locktest.MustUnlock(t, l)
				}
			}
			if d := time.Since(start); d > 50*time.Millisecond {
				t.Errorf("both had the lock after %v, want some round trips", d)
			}
			servers[2].Resume()
		})
	}
}
