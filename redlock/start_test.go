package redlock_test

import (
	"testing"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/embedded"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/redlock"
)

// another returns one more client of the servers, with paths to them that fail on their own.
func another(t *testing.T, servers []*embedded.Server, opts ...quorumlock.Option) (*redlock.Client, []*embedded.Server) {
	t.Helper()
	paths, nodes := locktest.Paths(t, servers)
	c, err := redlock.New(nodes, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, paths
}

// each calls f for all of the servers.
func each(servers []*embedded.Server, f func(s *embedded.Server)) {
	for _, s := range servers {
		f(s)
	}
}

// warm makes the client connect, so that what follows takes round trips only.
func warm(t *testing.T, c *redlock.Client) {
	t.Helper()
	locktest.Unlock(t, locktest.Lock(t, c.Mutex("warm")))
}
