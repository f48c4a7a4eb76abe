package hold

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/internal/testkit"
)

// A node that is away during UnlockAfter keeps no key for the time of an earlier ExtendTo.
func TestUnlockAfterEndsALongExtendTo(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		lease := testkit.Lock(t, c.Mutex("x"))
		synctest.Wait()
		testkit.Must(t, lease.ExtendTo(t.Context(), time.Hour), "ExtendTo")
		time.Sleep(time.Second)
		servers[2].Lose()
		testkit.Must(t, lease.UnlockAfter(t.Context(), 2*time.Second), "UnlockAfter")
		time.Sleep(5 * time.Second)
		servers[2].Resume()
		time.Sleep(10 * time.Second)
		for _, s := range servers {
			if s.Redis.Exists("x") {
				t.Errorf("%s keeps the lock for %v", s.Name, s.Redis.TTL("x"))
			}
		}
	})
}
