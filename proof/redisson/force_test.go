package redisson_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/proof/redisson"
)

func TestForceUnlockFreesALockOfRedissons(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		_, nodes := testkit.Paths(t, servers)
		for _, n := range nodes {
			java := redisson.New(n.Client())
			java.ID = "5cbe9c86-0c1e-4f0e-8dd4-5a8ad4b4b3e7" // one JVM
			if err := java.Lock("x").LockFor(t.Context(), 30*time.Second); err != nil {
				t.Fatal(err)
			}
		}
		testkit.Refused(t, c.Mutex("x"))
		if err := c.ForceUnlock(context.Background(), "x"); err != nil {
			t.Error(err)
		}
		testkit.NoLocks(t, servers)
	})
}
