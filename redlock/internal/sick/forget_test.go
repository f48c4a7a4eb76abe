package sick

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// A node that restarts without its data is asked to grant anew, and counts from the renewal after
// that: in the meantime another owner may have held the lock there.
func TestRestartWithNoDataCountsAgainFromTheRenewalAfterItsNewGrant(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		lease := locktest.Lock(t, c.Mutex("x"))
		locktest.HoldsAll(t, servers, lease)
		deadline := lease.ValidUntil()
		servers[3].Kill()
		servers[4].Kill() // so that the one that forgets is needed

		var mu sync.Mutex
		var ran []string
		servers[2].After(func(r embedded.Run) {
			mu.Lock()
			defer mu.Unlock()
			ran = append(ran, r.Script)
			if !lease.ValidUntil().Equal(deadline) {
				t.Errorf("the deadline has moved before %q: a node that forgot was counted", ran)
			}
			if r.Script == "renew" && slices.Contains(ran, "acquire") {
				servers[2].After(nil) // this one counts
			}
		})
		servers[2].Restart(false)
		time.Sleep(quorumlock.DefaultTTL * 2 / 3)
		servers[2].After(nil)
		mu.Lock()
		if want := []string{"renew", "acquire", "renew"}; !slices.Equal(ran, want) {
			t.Errorf("the node that restarted was sent %q, want %q", ran, want)
		}
		mu.Unlock()
		if !lease.ValidUntil().After(deadline) {
			t.Error("the lease was not renewed once the node counted again")
		}
		time.Sleep(2 * quorumlock.DefaultTTL)
		locktest.Held(t, lease)
		servers[3].Restart(true)
		servers[4].Restart(true)
		locktest.Unlock(t, lease)
		locktest.NoLocks(t, servers)
	})
}
