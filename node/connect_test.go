package node_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
)

// slowClients are the ways to a server where the handshake takes longer than a call may.
var slowClients = map[string]func(t *testing.T, s *embedded.Server) *node.Node{
	"dialled": func(t *testing.T, s *embedded.Server) *node.Node {
		return dial(t, "redis://h", node.WithDialer(s.DialContext))
	},
	"the caller's client": func(t *testing.T, s *embedded.Server) *node.Node {
		return over(t, redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Dialer: s.DialContext}))
	},
	"the caller's client, with deadlines": func(t *testing.T, s *embedded.Server) *node.Node {
		return over(t, redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Dialer: s.DialContext, ContextTimeoutEnabled: true}))
	},
	"a cluster, with deadlines": func(t *testing.T, s *embedded.Server) *node.Node {
		at := func(addr string) []redis.ClusterNode { return []redis.ClusterNode{{Addr: addr}} }
		return over(t, redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{"10.0.0.1:6379"}, Dialer: s.DialContext, ContextTimeoutEnabled: true,
			// Three addresses of one server.
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return []redis.ClusterSlot{
					{Start: 0, End: 5000, Nodes: at("10.0.0.1:6379")},
					{Start: 5001, End: 10000, Nodes: at("10.0.0.2:6379")},
					{Start: 10001, End: 16383, Nodes: at("10.0.0.3:6379")},
				}, nil
			}}))
	},
}

// A handshake takes several round trips. If they take longer than a call may, the connection is
// still made, for later calls.
func TestAConnectionThatTakesLongerThanACallIsMadeAllTheSame(t *testing.T) {
	for name, connect := range slowClients {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers, _ := locktest.Nodes(t, 1)
				n := connect(t, servers[0])
				servers[0].Delay(20 * time.Millisecond) // a round trip takes 40 ms
				// Each of another server of the cluster.
				for _, key := range []string{"a", "b", "c"} {
					reached := false
					for range 100 {
						ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
						reached = transport.Of(n).Send(ctx, count(key))[0].Err == nil
						cancel()
						if reached {
							break
						}
					}
					if !reached {
						t.Errorf("no call for %q in five seconds got an answer", key)
					}
				}
			})
		})
	}
}
