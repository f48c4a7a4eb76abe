package integration

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
)

func TestNodeThatRestartsWithItsDataStillHasTheLock(t *testing.T) {
	needServers(t)
	c, other := dial(t, five, unhurried), dial(t, five, unhurried)
	// The watchdog is far from due: what is there afterwards has been on the disk.
	lease := lock(t, c, "kept", quorumlock.WithTTL(10*time.Minute))
	everyNodeHas(t, "kept", lease)
	for _, s := range five[:2] {
		s.kill(t)
	}
	isHeld(t, other, "kept")
	for _, s := range five[:2] {
		s.restart(t)
		if got := holder(t, s, "kept"); got != string(lease.Owner()) {
			t.Errorf("%s is held by %q after its restart, want %q", s.addr, got, lease.Owner())
		}
	}
	isHeld(t, other, "kept")
	must(t, lease.Unlock(t.Context()))
}

func TestNodeThatRestartsWithoutItsDataIsAskedToGrantAgain(t *testing.T) {
	needServers(t)
	const ttl = 3 * time.Second
	c, other := dial(t, five, quorumlock.WithTTL(ttl)), dial(t, five, unhurried)
	lease := lock(t, c, "forgotten")
	everyNodeHas(t, "forgotten", lease)
	for _, s := range five[:2] {
		s.wipe(t)
		s.kill(t)
	}
	isHeld(t, other, "forgotten")
	for _, s := range five[:2] {
		s.restart(t)
	}
	everyNodeHas(t, "forgotten", lease)
	isHeld(t, other, "forgotten")
	must(t, lease.Context().Err())
	must(t, lease.Unlock(t.Context()))
}

func TestTokensRiseAfterEveryCounterIsLost(t *testing.T) {
	needServers(t)
	c := dial(t, five, unhurried)
	before := lock(t, c, "counted")
	must(t, before.Unlock(t.Context()))
	noLocks(t, five, patience)
	for _, s := range five {
		s.wipe(t)
		s.kill(t)
	}
	for _, s := range five {
		s.restart(t)
	}
	// A client of its own: it knows nothing of the tokens before.
	after := lock(t, dial(t, five, unhurried), "counted")
	if after.Token() <= before.Token() {
		t.Errorf("token %d after %d", after.Token(), before.Token())
	}
	must(t, after.Unlock(t.Context()))
}

func TestMajorityKilledEndsTheLeaseAndLocksAreHadAgainAfterwards(t *testing.T) {
	needServers(t)
	c, other := dial(t, five, quorumlock.WithTTL(3*time.Second)), dial(t, five, unhurried)
	lease := lock(t, c, "outage")
	for _, s := range five[:3] {
		s.kill(t)
	}
	told(t, lease)
	noQuorum(t, other, "outage", five[:3])
	for _, s := range five[:3] {
		s.restart(t)
	}
	next := lock(t, other, "outage")
	if next.Token() <= lease.Token() {
		t.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	must(t, next.Unlock(t.Context()))
}

// everyNodeHas waits until the lease's owner has the lock at all five: the slower ones join it, and
// those that lost it get it back.
func everyNodeHas(t *testing.T, name string, lease *quorumlock.Lease) {
	t.Helper()
	for _, s := range five {
		eventually(t, patience, s.addr+" has "+name, func() bool { return holder(t, s, name) == string(lease.Owner()) })
	}
}
