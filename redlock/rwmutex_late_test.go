package redlock_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// The acquire of a writer reaches a node after the Downgrade, and is granted. The node must not be taken for a second address
// of another one: it is told to share, and gets its share back when it forgets.
func TestANodeThatGrantsAfterTheDowngrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		m := c.RWMutex("x")
		locktest.Unlock(t, locktest.Lock(t, m)) // connects
		var late atomic.Bool
		late.Store(true)
		servers[2].Before(func(r embedded.Run) {
			if r.Script == "acquire" && late.CompareAndSwap(true, false) {
				time.Sleep(20 * time.Millisecond)
			}
		})
		w, err := m.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Downgrade(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		if mode := servers[2].Redis.HGet("x", "mode"); mode != "shared" {
			t.Errorf("the node's mode is %q", mode)
		}
		time.Sleep(5 * time.Second)
		servers[2].Redis.FlushAll()
		time.Sleep(5 * time.Second)
		locktest.HoldsAll(t, servers, w)
		locktest.Unlock(t, w)
	})
}
