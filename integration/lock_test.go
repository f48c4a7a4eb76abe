package integration

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

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
		// A grant that was under way may show for a moment, before it is given back.
		eventually(t, patience, s.addr+" has the token counter alone", func() bool {
			all, err := s.admin.Keys(t.Context(), "*jobs*").Result()
			must(t, err)
			return slices.Equal(all, []string{"redisson_lock_token:{jobs}"})
		})
	}
}

// fenced is a resource that a lock protects: it notices two writers at one time, and refuses tokens
// that do not rise.
type fenced struct {
	inside atomic.Int32
	token  uint64 // guarded by nothing but the lock
	writes int    // likewise: the race detector and a lost update tell of two holders
}

func (f *fenced) write(token uint64) error {
	defer f.inside.Add(-1)
	if n := f.inside.Add(1); n != 1 {
		return fmt.Errorf("%d writers at one time", n)
	}
	if token <= f.token {
		return fmt.Errorf("token %d after %d", token, f.token)
	}
	f.token = token
	f.writes++
	return nil
}

func TestClientsExcludeEachOtherAndTokensRise(t *testing.T) {
	needServers(t)
	const clients, rounds = 4, 12
	var f fenced
	g, ctx := errgroup.WithContext(t.Context())
	for range clients {
		c := dial(t, five, unhurried)
		g.Go(func() error {
			for range rounds {
				lease, err := c.Mutex("fenced").Lock(ctx)
				if err != nil {
					return err
				}
				if err := f.write(lease.Token()); err != nil {
					return err
				}
				if err := lease.Unlock(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	must(t, g.Wait())
	if f.writes != clients*rounds {
		t.Errorf("%d writes, want %d", f.writes, clients*rounds)
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

func TestLeaseWithoutRenewalEndsAndIsFreeForOthers(t *testing.T) {
	needServers(t)
	c, other := dial(t, five, unhurried), dial(t, five, unhurried)
	lease := lock(t, c, "short job", quorumlock.WithTTL(time.Second), quorumlock.WithoutRenewal(), quorumlock.WithNodeTimeout(time.Second))
	next := lock(t, other, "short job")
	if time.Now().Before(lease.ValidUntil()) {
		t.Error("granted to another while the first lease was valid")
	}
	told(t, lease)
	must(t, next.Unlock(t.Context()))
}
