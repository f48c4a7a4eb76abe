package locktest

import (
	"testing"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// Client returns a client of n new servers. It is closed at the end of the test.
func Client(t testing.TB, n int, opts ...quorumlock.Option) (*redlock.Client, []*embedded.Server) {
	t.Helper()
	servers, nodes := Nodes(t, n)
	return Of(t, nodes, opts...), servers
}

// Another returns one more client of the servers, with paths to them that fail on their own.
func Another(t testing.TB, servers []*embedded.Server, opts ...quorumlock.Option) (*redlock.Client, []*embedded.Server) {
	t.Helper()
	paths, nodes := Paths(t, servers)
	return Of(t, nodes, opts...), paths
}

// Of returns a client of the nodes. It is closed at the end of the test.
func Of(t testing.TB, nodes []*node.Node, opts ...quorumlock.Option) *redlock.Client {
	t.Helper()
	c, err := redlock.New(nodes, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Fleet returns clients of the same n new servers.
func Fleet(t testing.TB, clients, n int, opts ...quorumlock.Option) ([]*redlock.Client, []*embedded.Server) {
	t.Helper()
	return FleetOver(t, (*embedded.Server).Node, clients, n, opts...)
}

// FleetOver is Fleet, with the nodes of all clients but the first from connect.
func FleetOver(t testing.TB, connect func(*embedded.Server, ...node.Option) (*node.Node, error), clients, n int, opts ...quorumlock.Option) ([]*redlock.Client, []*embedded.Server) {
	t.Helper()
	c, servers := Client(t, n, opts...)
	all := []*redlock.Client{c}
	for len(all) < clients {
		nodes := make([]*node.Node, n)
		for i, s := range servers {
			var err error
			if nodes[i], err = connect(s); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, Of(t, nodes, opts...))
	}
	return all, servers
}

// Each calls f for all of the servers.
func Each(servers []*embedded.Server, f func(s *embedded.Server)) {
	for _, s := range servers {
		f(s)
	}
}
