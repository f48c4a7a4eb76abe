package redisson_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/proof/redisson"
)

func TestForceUnlockFreesALockOfRedissons(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		_, nodes := locktest.Paths(t, servers)
		for _, n := range nodes {
			java := redisson.New(n.Client())
			java.ID = "5cbe9c86-0c1e-4f0e-8dd4-5a8ad4b4b3e7" // one JVM
			if err := java.Lock("x").LockFor(t.Context(), 30*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		locktest.Refused(t, c.Mutex("x"))
		if err := c.Mutex("x").ForceUnlock(context.Background()); err != nil {
			t.Error(err)
		}
		locktest.NoLocks(t, servers)
	})
}
