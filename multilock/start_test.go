package multilock_test

import (
	"context"
	"testing"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/embedded"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/redlock"
)

// client returns a client of servers, with paths to them that fail on their own.
func client(t *testing.T, servers []*embedded.Server, opts ...quorumlock.Option) (*redlock.Client, []*embedded.Server) {
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

// start returns a client over n embedded servers.
func start(t *testing.T, n int, opts ...quorumlock.Option) (*redlock.Client, []*embedded.Server) {
	t.Helper()
	servers, _ := locktest.Nodes(t, n)
	c, _ := client(t, servers, opts...)
	return c, servers
}

// all returns the lock of all members.
func all(t *testing.T, members ...quorumlock.Locker) *multilock.Mutex {
	t.Helper()
	m, err := multilock.New(members)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// free checks that every lock is free, and nothing else.
func free(t *testing.T, locks ...quorumlock.Locker) {
	t.Helper()
	for _, l := range locks {
		locktest.Unlock(t, locktest.TryLock(t, l))
	}
}

func each(servers []*embedded.Server, f func(s *embedded.Server)) {
	for _, s := range servers {
		f(s)
	}
}

// foreign is a Locker of another make.
type foreign struct{ quorumlock.Locker }

func (foreign) Name() string { return "foreign" }

func (foreign) Lock(context.Context) (*quorumlock.Lease, error) { panic("not to be called") }
