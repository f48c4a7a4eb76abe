package redlock_test

import (
	"testing"
	"testing/synctest"

	"github.com/quorumlock/quorumlock/internal/locktest"
)

// A copy of a lease is the same lease: its Unlock releases the lock, and its Downgrade shares it.
func TestACopyOfALeaseReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		lease := *locktest.Lock(t, c.Mutex("x"))
		inner, err := c.Mutex("x").Lock(lease.Context())
		if err != nil {
			t.Fatal(err)
		}
		locktest.Unlock(t, inner)
		locktest.Unlock(t, &lease)
		locktest.Unlock(t, locktest.TryLock(t, c.Mutex("x")))

		rw := c.RWMutex("y")
		writer := *locktest.Lock(t, rw)
		if err := rw.Downgrade(t.Context(), &writer); err != nil {
			t.Errorf("Downgrade of a copy: %v", err)
		}
		locktest.Unlock(t, locktest.TryLock(t, rw.RLocker()))
		locktest.Unlock(t, &writer)
		locktest.Nothing(t, servers)
	})
}
