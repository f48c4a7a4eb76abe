package integration

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
)

func TestUnlockLeavesNothingButTheTokenCounter(t *testing.T) {
	needServers(t)
	c := dial(t, five, unhurried)
	lease := lock(t, c, "jobs")
	isHeld(t, dial(t, five, unhurried), "jobs")
	must(t, lease.Unlock(t.Context()))
	noLocks(t, five, patience)
	for _, s := range five {
		// A late grant may show for a moment, before it is released.
		eventually(t, patience, s.addr+" has the token counter alone", func() bool {
			all, err := s.admin.Keys(t.Context(), "*jobs*").Result()
			must(t, err)
			return slices.Equal(all, []string{"redisson_lock_token:{jobs}"})
		})
	}
}

func TestWatchdogHoldsTheLockPastItsTTL(t *testing.T) {
	needServers(t)
	const ttl = 2 * time.Second
	c, other := dial(t, five, quorumlock.WithTTL(ttl)), dial(t, five, unhurried)
	lease := lock(t, c, "long job")
	past := lease.ValidUntil().Add(ttl)
	for time.Now().Before(past) {
		select {
		case <-lease.Context().Done():
			t.Fatal(context.Cause(lease.Context()))
		case <-time.After(ttl / 10):
		}
		isHeld(t, other, "long job")
	}
	must(t, lease.Unlock(t.Context()))
}
