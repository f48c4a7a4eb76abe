package testkit

import (
	"testing"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// Client returns a client of n new servers. The end of the test closes it.
func Client(t testing.TB, n int, opts ...quorumlock.Option) (*redlock.Client, []*embedded.Server) {
	t.Helper()
	servers, nodes := Nodes(t, n)
	return Of(t, nodes, opts...), servers
}

// Another returns one more client of the servers. Its paths to them fail independently.
func Another(t testing.TB, servers []*embedded.Server, opts ...quorumlock.Option) (*redlock.Client, []*embedded.Server) {
	t.Helper()
	paths, nodes := Paths(t, servers)
	return Of(t, nodes, opts...), paths
}

// Of returns a client of the nodes. The end of the test closes it.
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

// FleetOver is Fleet with connect as the source of nodes for all clients but the first.
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

// Warm makes the client connect, so that later calls take round trips only.
func Warm(t testing.TB, c *redlock.Client) {
	t.Helper()
	Unlock(t, Lock(t, c.Mutex("warm")))
}

// Multi returns the MultiLock of all members.
func Multi(t testing.TB, members ...quorumlock.Locker) *multilock.Mutex {
	t.Helper()
	m, err := multilock.New(members)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Twin returns one more client of the servers, with two addresses for the first: nodes "a" and
// "again", the first and the last. The paths are in the order of the nodes.
func Twin(t testing.TB, servers []*embedded.Server, opts ...quorumlock.Option) (*redlock.Client, []*embedded.Server) {
	t.Helper()
	paths := []*embedded.Server{servers[0].Path("a")}
	for _, s := range servers[1:] {
		paths = append(paths, s.Path(s.Name))
	}
	paths = append(paths, servers[0].Path("again"))
	nodes := make([]*node.Node, len(paths))
	for i, p := range paths {
		var err error
		if nodes[i], err = p.Node(); err != nil {
			t.Fatal(err)
		}
	}
	closeAfter(t, paths, nodes)
	return Of(t, nodes, opts...), paths
}

// Roomy is Another with RoomyPaths.
func Roomy(t testing.TB, servers []*embedded.Server, opts ...quorumlock.Option) (*redlock.Client, []*embedded.Server) {
	t.Helper()
	paths, nodes := RoomyPaths(t, servers)
	return Of(t, nodes, opts...), paths
}

// RoomyPaths is Paths with so many connections for each node that no call waits for one. A call to
// a silent node occupies one for the node timeout. Calls that wait for one make go-redis keep
// timers that outlive the bubble and break the next test.
func RoomyPaths(t testing.TB, servers []*embedded.Server) ([]*embedded.Server, []*node.Node) {
	t.Helper()
	paths, nodes := make([]*embedded.Server, len(servers)), make([]*node.Node, len(servers))
	for i, s := range servers {
		paths[i] = s.Path(s.Name)
		n, err := node.Dial("redis://"+s.Name+"?pool_size=4096", node.WithName(s.Name), node.WithDialer(paths[i].DialContext))
		if err != nil {
			t.Fatal(err)
		}
		nodes[i] = n
	}
	closeAfter(t, paths, nodes)
	return paths, nodes
}

// Kill cuts off servers, or paths to them.
func Kill(servers ...*embedded.Server) { Each(servers, (*embedded.Server).Kill) }

// Restart ends a Kill. The data is kept.
func Restart(servers ...*embedded.Server) {
	Each(servers, func(s *embedded.Server) { s.Restart(true) })
}

// Each calls f for each of the servers.
func Each(servers []*embedded.Server, f func(s *embedded.Server)) {
	for _, s := range servers {
		f(s)
	}
}
