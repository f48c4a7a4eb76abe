package integration

import (
	"testing"

	"github.com/quorumlock/quorumlock"
)

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

// everyNodeHas waits until the lease's owner has the lock at all five nodes: slower ones grant it
// late, and those that lost it get it back.
func everyNodeHas(t *testing.T, name string, lease *quorumlock.Lease) {
	t.Helper()
	for _, s := range five {
		eventually(t, patience, s.addr+" has "+name, func() bool { return holder(t, s, name) == string(lease.Owner()) })
	}
}
