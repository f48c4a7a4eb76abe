package redlock_test

import (
	"testing"

	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/redlock"
)

// warm makes the client connect, so that what follows takes round trips only.
func warm(t *testing.T, c *redlock.Client) {
	t.Helper()
	locktest.Unlock(t, locktest.Lock(t, c.Mutex("warm")))
}
